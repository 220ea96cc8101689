package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// probeAfter is how long the API server may be silent before it is probed.
	probeAfter    = 5 * time.Second
	probeInterval = time.Second
	probeTimeout  = 3 * time.Second
	unreadyAfter  = 10 * time.Second
	// lostAfter is longer than unreadyAfter, so that nodes whose streams end find a ready replica.
	lostAfter = 20 * time.Second
)

// apiHealth observes the connection to the API server. It probes the API server only if no watch
// event has arrived for a while.
type apiHealth struct {
	probe func(context.Context) error

	mu          sync.Mutex
	lastContact time.Time
	connected   context.Context //nolint:containedctx // ends when the connection is lost
	lose        context.CancelFunc
}

// newAPIHealth returns an apiHealth that starts as connected. probe is a cheap request.
func newAPIHealth(probe func(context.Context) error) *apiHealth {
	connected, lose := context.WithCancel(context.Background())
	return &apiHealth{probe: probe, lastContact: time.Now(), connected: connected, lose: lose}
}

// contacted records that the API server has answered or sent an event.
func (h *apiHealth) contacted() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lastContact = time.Now()
	if h.connected.Err() != nil {
		h.connected, h.lose = context.WithCancel(context.Background())
	}
}

// check returns an error if the API server has been silent for longer than unreadyAfter.
func (h *apiHealth) check() error {
	if silence := h.silence(); silence > unreadyAfter {
		return fmt.Errorf("API server has not answered for %s", silence.Round(time.Second))
	}
	return nil
}

// connectionLost returns a channel that is closed once the API server has been silent for longer
// than lostAfter.
func (h *apiHealth) connectionLost() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.connected.Done()
}

func (h *apiHealth) silence() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Since(h.lastContact)
}

func (h *apiHealth) run(ctx context.Context) {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if h.silence() > probeAfter {
			h.probeOnce(ctx)
		}
		h.closeIfLost()
	}
}

func (h *apiHealth) probeOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if h.probe(ctx) == nil {
		h.contacted()
	}
}

func (h *apiHealth) closeIfLost() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.lastContact) > lostAfter {
		h.lose()
	}
}
