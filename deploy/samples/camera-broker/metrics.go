package camerabroker

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"akri.sh/deploy/samples/camera-broker/internal/video"
)

func countEvents(registry prometheus.Registerer) func(video.Event) {
	count := func(name, help string) prometheus.Counter {
		return promauto.With(registry).NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	counters := map[video.Event]prometheus.Counter{
		video.FrameReceived:  count("akri_frame_count", "Frames that the camera has sent. It has the name of upstream's brokers."),
		video.FrameDropped:   count("akri_camera_dropped_frames_total", "Frames that a slow viewer has missed, counted for each viewer."),
		video.SessionStarted: count("akri_camera_sessions_total", "Sessions that were opened with the camera."),
	}
	return func(event video.Event) { counters[event].Inc() }
}

func registerReaders(registry prometheus.Registerer, hub *video.Hub) {
	gauge := func(name, help string, value func() float64) {
		promauto.With(registry).NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
	}
	gauge("akri_camera_viewers", "Streams that are open, and 1 while images are requested.", func() float64 { return float64(hub.Readers()) })
	gauge("akri_camera_up", "1 if the camera sent frames when it was last asked for them, 0 otherwise.", func() float64 {
		if hub.Health() != nil {
			return 0
		}
		return 1
	})
}
