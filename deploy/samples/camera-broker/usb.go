package camerabroker

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"akri.sh/deploy/samples/camera-broker/internal/mjpeg"
	"akri.sh/deploy/samples/camera-broker/internal/v4l2"
	"akri.sh/deploy/samples/camera-broker/internal/video"
)

// usbCamera captures frames with Video4Linux.
type usbCamera struct {
	settings Settings
	log      *slog.Logger
}

// Run is that of video.Source.
func (u usbCamera) Run(ctx context.Context, emit func(*video.Frame)) error {
	device, err := v4l2.Open(u.settings.Path)
	if err != nil {
		return err
	}
	defer func() { _ = device.Close() }()
	format, err := u.configure(device)
	if err != nil {
		return fmt.Errorf("configure %s: %w", u.settings.Path, err)
	}
	u.log.Info("capturing frames", "device", u.settings.Path, "format", format.Pixels.String(), "width", format.Width, "height", format.Height)
	start := time.Now()
	if err := device.Capture(ctx, func(raw []byte) {
		emit(video.NewImage(time.Since(start), newImage(raw, format)))
	}); err != nil {
		return fmt.Errorf("capture from %s: %w", u.settings.Path, err)
	}
	return nil
}

// configure uses the preferred pixel format if the camera offers it, and another one otherwise.
func (u usbCamera) configure(device *v4l2.Device) (v4l2.Format, error) {
	offered, err := device.PixelFormats()
	if err != nil {
		return v4l2.Format{}, err
	}
	usable := []v4l2.PixelFormat{v4l2.MJPG, v4l2.YUYV}
	if u.settings.Format == v4l2.YUYV.String() {
		slices.Reverse(usable)
	}
	for _, pixels := range usable {
		if slices.Contains(offered, pixels) {
			return device.Configure(pixels, u.settings.Width, u.settings.Height, u.settings.FramesPerSecond)
		}
	}
	return v4l2.Format{}, fmt.Errorf("the camera offers %v, not MJPG or YUYV", offered)
}

// newImage copies a frame, because the camera overwrites it. The image is encoded once for all
// readers, and not without readers.
func newImage(raw []byte, format v4l2.Format) func() ([]byte, error) {
	raw = bytes.Clone(raw)
	return sync.OnceValues(func() ([]byte, error) {
		if format.Pixels == v4l2.MJPG {
			return mjpeg.Complete(raw)
		}
		return mjpeg.Encode(raw, format.Width, format.Height, format.BytesPerLine)
	})
}
