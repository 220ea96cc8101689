package uevent_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/services/handler-udev/internal/uevent"
)

func kernel(lines ...string) []byte {
	return []byte(strings.Join(append([]string{"add@/devices/x"}, lines...), "\x00") + "\x00")
}

func fromUdev(lines ...string) []byte {
	properties := strings.Join(lines, "\x00") + "\x00"
	header := make([]byte, 40)
	copy(header, "libudev\x00")
	binary.BigEndian.PutUint32(header[8:], 0xfeedcafe)
	binary.NativeEndian.PutUint32(header[12:], 40)
	binary.NativeEndian.PutUint32(header[16:], 40)
	binary.NativeEndian.PutUint32(header[20:], uint32(len(properties)))
	return append(header, properties...)
}

func TestEventsOfKernelAndUdevAreRead(t *testing.T) {
	for name, test := range map[string]struct {
		message []byte
		want    uevent.Event
	}{
		"kernel": {kernel("ACTION=add", "DEVPATH=/devices/x", "SUBSYSTEM=block"), uevent.Event{Action: "add", Devpath: "/devices/x"}},
		"a move": {
			kernel("ACTION=move", "DEVPATH=/devices/y", "DEVPATH_OLD=/devices/x"),
			uevent.Event{Action: "move", Devpath: "/devices/y", OldDevpath: "/devices/x"},
		},
		"udev": {fromUdev("ACTION=change", "DEVPATH=/devices/x", "ID_MODEL=a=b"), uevent.Event{Action: "change", Devpath: "/devices/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := uevent.Parse(test.message)
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}

func TestMalformedEventsAreRefused(t *testing.T) {
	long := fromUdev("ACTION=add", "DEVPATH=/x")
	binary.NativeEndian.PutUint32(long[20:], 1<<31)
	magic := fromUdev("ACTION=add", "DEVPATH=/x")
	magic[8] = 0
	for name, message := range map[string][]byte{
		"empty":           {},
		"no end":          []byte("add@/devices/x"),
		"no action":       kernel("DEVPATH=/devices/x"),
		"no path":         kernel("ACTION=add"),
		"a relative path": kernel("ACTION=add", "DEVPATH=x"),
		"only a header":   []byte("libudev\x00"),
		"a wrong magic":   magic,
		"a wrong length":  long,
	} {
		_, err := uevent.Parse(message)
		require.Error(t, err, name)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(kernel("ACTION=add", "DEVPATH=/devices/x"))
	f.Add(fromUdev("ACTION=add", "DEVPATH=/devices/x"))
	f.Add([]byte("libudev\x00"))
	f.Fuzz(func(t *testing.T, message []byte) {
		if event, err := uevent.Parse(message); err == nil {
			require.NotEmpty(t, event.Action)
			require.NotEmpty(t, event.Devpath)
		}
	})
}
