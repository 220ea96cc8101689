// Package pulse knows whether somebody far away still answers. It asks only when nothing was heard
// for a while.
package pulse

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	askAfter    = 5 * time.Second
	askEvery    = time.Second
	askWithin   = 3 * time.Second
	silentAfter = 10 * time.Second
	// lostAfter leaves those who come back time to do so.
	lostAfter = 20 * time.Second
)

// Pulse is that of one neighbour.
type Pulse struct {
	ask func(context.Context) error

	mu    sync.Mutex
	heard time.Time
	lost  chan struct{} // closed while it is lost
}

// New returns a Pulse of somebody who is heard now. `ask` is a question that costs little.
func New(ask func(context.Context) error) *Pulse {
	return &Pulse{ask: ask, heard: time.Now(), lost: make(chan struct{})}
}

// Heard tells that it is alive.
func (p *Pulse) Heard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard = time.Now()
	if p.isLost() {
		p.lost = make(chan struct{})
	}
}

func (p *Pulse) isLost() bool {
	select {
	case <-p.lost:
		return true
	default:
		return false
	}
}

// Silent returns an error when nothing was heard for too long.
func (p *Pulse) Silent() error {
	if silence := p.silence(); silence > silentAfter {
		return fmt.Errorf("no answer for %s", silence.Round(time.Second))
	}
	return nil
}

// Lost is closed once nothing was heard for so long that others should be asked instead.
func (p *Pulse) Lost() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

func (p *Pulse) silence() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.heard)
}

// Run listens until ctx ends.
func (p *Pulse) Run(ctx context.Context) {
	ticks := time.NewTicker(askEvery)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks.C:
		}
		if p.silence() > askAfter {
			p.askNow(ctx)
		}
		p.give()
	}
}

func (p *Pulse) askNow(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	if p.ask(ctx) == nil {
		p.Heard()
	}
}

// give declares it lost when it is.
func (p *Pulse) give() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.heard) > lostAfter && !p.isLost() {
		close(p.lost)
	}
}
