package camerabroker

import (
	"log/slog"

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
