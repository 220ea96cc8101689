package rules_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/details/udev/rules"
)

func TestSources(t *testing.T) {
	for text, want := range map[string]string{
		"KERNEL":          "video0",
		" SUBSYSTEM ":     "video4linux",
		"DRIVER":          "",
		"DRIVERS":         "uvcvideo",
		"SUBSYSTEMS":      "video4linux",
		"KERNELS":         "video0",
		"DEVPATH":         "/devices/pci0000:00/0000:00:14.0/usb1/1-1/1-1.2/1-1.2:1.0/video4linux/video0",
		"ATTR{name}":      "C270",
		"ATTR{idVendor}":  "",
		"ATTRS{idVendor}": "046d",
		"ATTRS{product}":  "Webcam (C270), black & white",
		"ATTRS{serial}":   "",
		"ATTRS{nothing}":  "",
		"ENV{ID_MODEL}":   "a,b(c)=@#'+",
		"ENV{NOTHING}":    "",
	} {
		source, err := rules.ParseSource(text)
		require.NoError(t, err, text)
		require.Equal(t, want, source.Read(camera()), text)
	}
	for text, want := range map[string]string{
		"":              "position 1: expected a key",
		"KERNEL==\"a\"": "position 7: expected nothing after the key",
		" TAGS":         "position 2: TAG and TAGS cannot be read",
		"ATTR":          "position 5: key ATTR requires a name",
		"ATTR{../x}":    "position 6: name",
		"serial":        "position 1: unknown key serial",
		"SYMLINK":       "position 1: key SYMLINK is not supported",
	} {
		_, err := rules.ParseSource(text)
		require.ErrorContains(t, err, want, text)
	}
}

func FuzzParseSource(f *testing.F) {
	for _, seed := range []string{"ATTRS{serial}", "KERNEL", "ENV{ID_MODEL} ", "ATTR{", "TAG", "ATTR{[a]b}", "\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		source, err := rules.ParseSource(text)
		if err != nil {
			requirePosition(t, err, text)
			return
		}
		_ = source.Read(camera())
	})
}
