package handler

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap/zapcore"
)

// presence is what a handler knows about how Akri sees it.
type presence struct {
	metrics *metrics
	changed chan struct{} // capacity 1: the first stream opened or the last one closed

	mu      sync.Mutex
	streams int
	problem error // why it is not registered; nil: it is
}

func newPresence(m *metrics) *presence {
	return &presence{metrics: m, changed: make(chan struct{}, 1), problem: errors.New("not registered yet")}
}

func (p *presence) opened() { p.add(1) }
func (p *presence) closed() { p.add(-1) }

func (p *presence) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.streams += n
	p.metrics.streams.Set(float64(p.streams))
	notify(p.changed)
}

func (p *presence) used() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.streams > 0
}

func (p *presence) registered(err error) {
	result := accepted
	if err != nil {
		result = failed
	}
	p.metrics.registrations.WithLabelValues(result).Inc()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problem = err
}

// ready is the readiness check: Akri knows the handler, or uses it.
func (p *presence) ready(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.streams > 0 {
		return nil
	}
	return p.problem
}

// untilNeeded waits until the handler should register again; false when ctx ended.
func (p *presence) untilNeeded(ctx context.Context, made <-chan struct{}) bool {
	for {
		var lonely <-chan time.Time
		if !p.used() {
			lonely = time.After(alone)
		}
		select {
		case <-ctx.Done():
			return false
		case <-made:
			return true
		case <-lonely:
			return true
		case <-p.changed:
		}
	}
}

// registerLevel warns once: a handler that starts before Akri is ordinary.
func registerLevel(attempt int) zapcore.Level {
	if attempt == 5 {
		return zapcore.WarnLevel
	}
	return zapcore.DebugLevel
}
