// Package camerabroker is a broker for cameras: it reads video from a camera with ONVIF or RTSP, or
// from a USB camera, and serves it over HTTP and gRPC.
package camerabroker

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"akri.sh/deploy/samples/camera-broker/internal/decode"
	"akri.sh/deploy/samples/camera-broker/internal/rtsp"
	"akri.sh/deploy/samples/camera-broker/internal/video"
	"akri.sh/proto/camera"
)

// maxRequest limits the bytes of a request. That of GetFrame is empty.
const maxRequest = 4 << 10

// Broker serves the video of a camera.
type Broker struct {
	settings Settings
	hub      *video.Hub
	decoder  *decode.Decoder
}

// New returns a broker. decoder is the command of the process that decodes H.264, which calls
// decode.Serve.
func New(settings Settings, registry prometheus.Registerer, log *slog.Logger, decoder ...string) (*Broker, error) {
	source, err := newSource(settings, log)
	if err != nil {
		return nil, err
	}
	return newBroker(settings, source, registry, log, decoder...), nil
}

func newBroker(settings Settings, source video.Source, registry prometheus.Registerer, log *slog.Logger, decoder ...string) *Broker {
	hub := video.NewHub(source, log, countEvents(registry))
	registerReaders(registry, hub)
	return &Broker{settings: settings, hub: hub, decoder: decode.New(hub, log, decoder...)}
}

func newSource(settings Settings, log *slog.Logger) (video.Source, error) {
	if settings.Service == nil && settings.Stream == nil {
		return usbCamera{settings, log}, nil
	}
	authorities, err := readAuthorities(settings.AuthoritiesFile)
	if err != nil {
		return nil, err
	}
	resolve := func(context.Context) (*url.URL, error) { return settings.Stream, nil }
	if settings.Stream == nil {
		resolve = newLocator(settings, authorities, log).resolve
	}
	return rtsp.New(rtsp.Options{
		Resolve: resolve, Credentials: settings.Credentials, UDP: settings.UDP, TLS: streamTLS(authorities), Log: log,
	}), nil
}

// Run serves on the listener until ctx ends. A camera that fails does not end it: /healthz has the
// reason, and the session is opened again.
func (b *Broker) Run(ctx context.Context, listener net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { b.hub.Run(ctx); return nil })
	group.Go(func() error { b.decoder.Run(ctx); return nil })
	group.Go(func() error { return b.settings.Server.Serve(ctx, listener, b.hub.Health, b.pages(), b.api()) })
	return group.Wait()
}

func (b *Broker) api() *grpc.Server {
	server := grpc.NewServer(grpc.MaxRecvMsgSize(maxRequest))
	camera.RegisterCameraServer(server, frames{broker: b})
	return server
}

// image returns the latest frame as a JPEG image.
func (b *Broker) image(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, imageTimeout)
	defer cancel()
	image, err := b.decoder.Image(ctx)
	if err != nil {
		return nil, fmt.Errorf("camera %s: %w", b.settings.Name, err)
	}
	return image, nil
}

// Decode is the process that decodes H.264.
func Decode(in io.Reader, out io.Writer) error { return decode.Serve(in, out) }
