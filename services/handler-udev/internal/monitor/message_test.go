package monitor_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/services/handler-udev/internal/monitor"
)

// kernelMessage encodes a message of the kernel.
func kernelMessage(lines ...string) []byte {
	return []byte(strings.Join(append([]string{"add@/devices/x"}, lines...), "\x00") + "\x00")
}

// udevMessage encodes a message of udevd.
func udevMessage(lines ...string) []byte {
	properties := strings.Join(lines, "\x00") + "\x00"
	header := make([]byte, 40)
	copy(header, "libudev\x00")
	binary.BigEndian.PutUint32(header[8:], 0xfeedcafe)
	binary.NativeEndian.PutUint32(header[12:], 40)
	binary.NativeEndian.PutUint32(header[16:], 40)
	binary.NativeEndian.PutUint32(header[20:], uint32(len(properties)))
	return append(header, properties...)
}

func TestParse(t *testing.T) {
	for name, test := range map[string]struct {
		message []byte
		want    monitor.Event
	}{
		"kernel": {
			kernelMessage("ACTION=add", "DEVPATH=/devices/x", "SUBSYSTEM=block", "MAJOR=8", "MINOR=0"),
			monitor.Event{Action: "add", Devpath: "/devices/x", Entry: "b8:0"},
		},
		"move": {
			kernelMessage("ACTION=move", "DEVPATH=/devices/y", "DEVPATH_OLD=/devices/x", "SUBSYSTEM=net", "IFINDEX=3"),
			monitor.Event{Action: "move", Devpath: "/devices/y", OldDevpath: "/devices/x", Entry: "n3"},
		},
		"character device": {
			kernelMessage("ACTION=remove", "DEVPATH=/devices/x", "SUBSYSTEM=tty", "MAJOR=188", "MINOR=0"),
			monitor.Event{Action: "remove", Devpath: "/devices/x", Entry: "c188:0"},
		},
		"udev": {
			udevMessage("ACTION=change", "DEVPATH=/devices/x", "ID_MODEL=a=b", "SUBSYSTEM=usb"),
			monitor.Event{Action: "change", Devpath: "/devices/x", Udevd: true, Entry: "+usb:x"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := monitor.Parse(test.message)
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}

func TestParseRejectsMalformedMessages(t *testing.T) {
	long := udevMessage("ACTION=add", "DEVPATH=/x")
	binary.NativeEndian.PutUint32(long[20:], 1<<31)
	magic := udevMessage("ACTION=add", "DEVPATH=/x")
	magic[8] = 0
	for name, message := range map[string][]byte{
		"empty":              {},
		"no zero byte":       []byte("add@/devices/x"),
		"no action":          kernelMessage("DEVPATH=/devices/x"),
		"no devpath":         kernelMessage("ACTION=add"),
		"relative path":      kernelMessage("ACTION=add", "DEVPATH=x"),
		"only the prefix":    []byte("libudev\x00"),
		"wrong magic number": magic,
		"wrong length":       long,
	} {
		_, err := monitor.Parse(message)
		require.Error(t, err, name)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(kernelMessage("ACTION=add", "DEVPATH=/devices/x"))
	f.Add(udevMessage("ACTION=add", "DEVPATH=/devices/x"))
	f.Add([]byte("libudev\x00"))
	f.Fuzz(func(t *testing.T, message []byte) {
		if event, err := monitor.Parse(message); err == nil {
			require.NotEmpty(t, event.Action)
			require.NotEmpty(t, event.Devpath)
		}
	})
}
