package camerabroker

import (
	"context"
	"log/slog"
	"net/url"

	"github.com/prometheus/client_golang/prometheus"

	"akri.sh/deploy/samples/camera-broker/internal/video"
)

// NewWithSource returns a broker of a source.
func NewWithSource(settings Settings, source video.Source, log *slog.Logger, decoder ...string) *Broker {
	return newBroker(settings, source, prometheus.NewRegistry(), log, decoder...)
}

// Source returns the camera of the settings.
func Source(settings Settings) video.Source {
	source, err := newSource(settings, slog.New(slog.DiscardHandler))
	if err != nil {
		panic(err)
	}
	return source
}

// Resolve returns the address of the stream of a camera with ONVIF.
func Resolve(ctx context.Context, settings Settings, log *slog.Logger) (*url.URL, error) {
	return newLocator(settings, nil, log).resolve(ctx)
}

// Readers returns the number of streams that a broker serves.
func Readers(b *Broker) int { return b.hub.Readers() }
