package discovery

import (
	"time"

	"go.uber.org/zap"
)

// silentAfter is the time after which an open stream without a list means that the handler has
// found no device so far. Handlers of upstream Akri look for devices every 10 s and send no empty
// first list.
const silentAfter = 15 * time.Second

// beginSilence is called when a stream opens. Until end is called, the session becomes silent after
// silentAfter, and its devices are gone after the grace.
func (s *Session) beginSilence() (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ended, failure := false, s.failure // of the previous stream
	during := func(change func()) func() {
		return func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if ended {
				return
			}
			change()
			if s.failure == failure {
				s.failure = nil
			}
			s.Notify()
		}
	}
	silent := time.AfterFunc(silentAfter, during(func() { s.silent = true }))
	gone := time.AfterFunc(s.discoverer.Grace, during(func() {
		s.log.Info("handler has sent no list within the grace", zap.Int("removed_devices", len(s.devices)))
		s.devices, s.answered, s.rejected = nil, true, nil
	}))
	return func() {
		silent.Stop()
		gone.Stop()
		s.mu.Lock()
		defer s.mu.Unlock()
		ended = true
	}
}
