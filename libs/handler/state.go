package handler

import (
	"context"
	"errors"
	"sync"

	"akri.sh/libs/broadcast"
)

// state is the registration and use of a handler.
type state struct {
	metrics *metrics
	changed broadcast.Signal // the number of streams changed

	mu      sync.Mutex
	streams int
	err     error // why the handler is not registered; nil if it is
}

func newState(m *metrics) *state {
	return &state{metrics: m, changed: broadcast.NewSignal(), err: errors.New("not registered yet")}
}

// addStreams changes the number of open Discover streams.
func (s *state) addStreams(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.streams += n
	s.metrics.streams.Set(float64(s.streams))
	s.changed.Notify()
}

// used reports whether a Discover stream is open.
func (s *state) used() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.streams > 0
}

// registered stores the result of a registration.
func (s *state) registered(err error) {
	result := accepted
	if err != nil {
		result = failed
	}
	s.metrics.registrations.WithLabelValues(result).Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// ready is the readiness check: the handler is registered or in use.
func (s *state) ready(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams > 0 {
		return nil
	}
	return s.err
}
