package monitor

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
)

// Event is a uevent of one device.
type Event struct {
	// Action is add, change, remove, bind, unbind, move, online or offline.
	Action string
	// Devpath is the path of the device without /sys. OldDevpath is the previous path after a move.
	Devpath    string
	OldDevpath string
}

var errMalformed = errors.New("malformed uevent")

// The header of udevd's messages, monitor_netlink_header of libudev: "libudev", a zero byte, a
// magic number in network byte order and then, in native byte order, the size of the header and the
// offset and length of the properties.
const (
	udevPrefix       = "libudev\x00"
	udevMagic        = 0xfeedcafe
	magicOffset      = 8
	propertiesOffset = 16
	lengthOffset     = 20
	headerSize       = 24
)

// Parse reads a message of the kernel or of udevd.
func Parse(message []byte) (Event, error) {
	properties, err := properties(message)
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

// properties returns the KEY=value part of a message.
func properties(message []byte) ([]byte, error) {
	if !bytes.HasPrefix(message, []byte(udevPrefix)) {
		// Messages of the kernel start with action@devpath.
		_, properties, ok := bytes.Cut(message, []byte{0})
		if !ok {
			return nil, errMalformed
		}
		return properties, nil
	}
	if len(message) < headerSize || binary.BigEndian.Uint32(message[magicOffset:]) != udevMagic {
		return nil, errMalformed
	}
	offset := uint64(binary.NativeEndian.Uint32(message[propertiesOffset:]))
	length := uint64(binary.NativeEndian.Uint32(message[lengthOffset:]))
	if offset+length > uint64(len(message)) {
		return nil, errMalformed
	}
	return message[offset : offset+length], nil
}
