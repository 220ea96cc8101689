// Package uevent hears from the kernel, and from udev where its messages arrive, that devices changed.
package uevent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
)

// Event says that something happened to one device.
type Event struct {
	// Action is what happened: add, change, remove, bind, unbind, move, online or offline.
	Action string
	// Devpath is the device's path below /sys; OldDevpath the one it had before it moved.
	Devpath    string
	OldDevpath string
}

var errMalformed = errors.New("malformed uevent")

// udev's messages begin with a header: "libudev", a zero, a magic number in network order, and then, in the order of the
// machine, the size of the header and the offset and length of the properties (libudev-monitor's monitor_netlink_header).
const (
	udevPrefix       = "libudev\x00"
	udevMagic        = 0xfeedcafe
	magicOffset      = 8
	propertiesOffset = 16
	lengthOffset     = 20
	headerSize       = 24
)

// Parse reads one message of either sender.
func Parse(message []byte) (Event, error) {
	properties, err := propertiesOf(message)
	if err != nil {
		return Event{}, err
	}
	var event Event
	for line := range bytes.SplitSeq(properties, []byte{0}) {
		key, value, _ := strings.Cut(string(line), "=")
		switch key {
		case "ACTION":
			event.Action = value
		case "DEVPATH":
			event.Devpath = value
		case "DEVPATH_OLD":
			event.OldDevpath = value
		}
	}
	if event.Action == "" || !strings.HasPrefix(event.Devpath, "/") {
		return Event{}, errMalformed
	}
	return event, nil
}

func propertiesOf(message []byte) ([]byte, error) {
	if !bytes.HasPrefix(message, []byte(udevPrefix)) {
		// The kernel's begin with `action@devpath`.
		_, properties, ok := bytes.Cut(message, []byte{0})
		if !ok {
			return nil, errMalformed
		}
		return properties, nil
	}
	if len(message) < headerSize || binary.BigEndian.Uint32(message[magicOffset:]) != udevMagic {
		return nil, errMalformed
	}
	from := uint64(binary.NativeEndian.Uint32(message[propertiesOffset:]))
	length := uint64(binary.NativeEndian.Uint32(message[lengthOffset:]))
	if from+length > uint64(len(message)) {
		return nil, errMalformed
	}
	return message[from : from+length], nil
}
