package camerabroker

import (
	"errors"
	"fmt"
	"strconv"
)

// Settings of the camera. They have the names and defaults of upstream Akri's udev-video-broker.
type Settings struct {
	// Path of the device node: UDEV_DEVNODE.
	Path string
	// Format is the preferred pixel format, MJPG or YUYV: FORMAT.
	Format string
	// Width and Height in pixels: RESOLUTION_WIDTH, RESOLUTION_HEIGHT.
	Width, Height int
	// FramesPerSecond: FRAMES_PER_SECOND.
	FramesPerSecond int
}

// Read returns the settings in the environment. It reports all errors at once.
func Read(getenv func(string) string) (Settings, error) {
	var errs []error
	number := func(name string, standard int) int {
		text := getenv(name)
		if text == "" {
			return standard
		}
		value, err := strconv.ParseUint(text, 10, 16)
		if err != nil || value == 0 {
			errs = append(errs, fmt.Errorf("%s=%q: must be a number from 1 to 65535", name, text))
		}
		return int(value)
	}
	s := Settings{
		Path: getenv("UDEV_DEVNODE"), Format: getenv("FORMAT"),
		Width: number("RESOLUTION_WIDTH", 640), Height: number("RESOLUTION_HEIGHT", 480),
		FramesPerSecond: number("FRAMES_PER_SECOND", 10),
	}
	if s.Path == "" {
		errs = append(errs, errors.New("UDEV_DEVNODE is not set: the Pod must request a device of the handler udev"))
	}
	switch s.Format {
	case "":
		s.Format = "MJPG"
	case "MJPG", "YUYV":
	default:
		errs = append(errs, fmt.Errorf("FORMAT=%q: must be MJPG or YUYV", s.Format))
	}
	return s, errors.Join(errs...)
}
