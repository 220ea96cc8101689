package camerabroker

import "net/http"

// Handler returns the handler of the HTTP server.
func (b *Broker) Handler() http.Handler { return b.handler() }

// Publish makes an image the latest frame.
func (b *Broker) Publish(image []byte, err error) {
	b.latest.Set(func() ([]byte, error) { return image, err })
}
