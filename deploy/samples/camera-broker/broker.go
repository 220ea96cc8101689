// Package camerabroker is a broker for cameras: it captures frames with Video4Linux and serves them
// over HTTP as JPEG images and as a video stream.
package camerabroker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"akri.sh/libs/broadcast"

	"akri.sh/deploy/samples/camera-broker/internal/mjpeg"
	"akri.sh/deploy/samples/camera-broker/internal/v4l2"
)

const headerTimeout = 5 * time.Second

// frame returns the image of a frame. It is encoded once for all clients, and not without clients.
type frame func() ([]byte, error)

// Broker serves the frames of a camera.
type Broker struct {
	settings Settings
	log      *slog.Logger
	latest   broadcast.Value[frame]
}

// New returns a broker.
func New(settings Settings, log *slog.Logger) *Broker {
	return &Broker{settings: settings, log: log}
}

// Run captures frames and serves them on the listener until ctx ends or the camera fails.
func (b *Broker) Run(ctx context.Context, listener net.Listener) error {
	defer listener.Close()
	camera, err := v4l2.Open(b.settings.Path)
	if err != nil {
		return err
	}
	defer func() { _ = camera.Close() }()
	format, err := b.configure(camera)
	if err != nil {
		return fmt.Errorf("configure %s: %w", b.settings.Path, err)
	}
	b.log.Info("capturing frames", "device", b.settings.Path, "format", format.Pixels.String(), "width", format.Width, "height", format.Height)

	group, ctx := errgroup.WithContext(ctx)
	server := &http.Server{
		Handler: b.handler(), ReadHeaderTimeout: headerTimeout,
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	group.Go(func() error {
		err := camera.Capture(ctx, func(raw []byte) { b.latest.Set(newFrame(raw, format)) })
		if err != nil {
			err = fmt.Errorf("capture from %s: %w", b.settings.Path, err)
		}
		return err
	})
	group.Go(func() error {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve http: %w", err)
		}
		return nil
	})
	group.Go(func() error {
		<-ctx.Done()
		return server.Close()
	})
	return group.Wait()
}

// configure uses the preferred pixel format if the camera offers it, and another one otherwise.
func (b *Broker) configure(camera *v4l2.Device) (v4l2.Format, error) {
	offered, err := camera.PixelFormats()
	if err != nil {
		return v4l2.Format{}, err
	}
	usable := []v4l2.PixelFormat{v4l2.MJPG, v4l2.YUYV}
	if b.settings.Format == v4l2.YUYV.String() {
		slices.Reverse(usable)
	}
	for _, pixels := range usable {
		if slices.Contains(offered, pixels) {
			return camera.Configure(pixels, b.settings.Width, b.settings.Height, b.settings.FramesPerSecond)
		}
	}
	return v4l2.Format{}, fmt.Errorf("the camera offers %v, not MJPG or YUYV", offered)
}

// newFrame copies a frame, because the camera overwrites it.
func newFrame(raw []byte, format v4l2.Format) frame {
	raw = bytes.Clone(raw)
	return sync.OnceValues(func() ([]byte, error) {
		if format.Pixels == v4l2.MJPG {
			return mjpeg.Complete(raw)
		}
		return mjpeg.Encode(raw, format.Width, format.Height, format.BytesPerLine)
	})
}
