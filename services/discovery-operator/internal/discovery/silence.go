package discovery

import (
	"context"
	"time"

	"go.uber.org/zap"

	"akri.sh/libs/grace"
	"akri.sh/services/discovery-operator/internal/inventory"
)

// silentAfter is the time after which an open stream without a list means that the handler has
// found no device so far. Handlers of upstream Akri look for devices every 10 s and send no empty
// first list.
const silentAfter = 15 * time.Second

// beginSilence is called when a stream opens. Until end is called, the session becomes silent after
// silentAfter, and its devices are gone after the grace.
func (s *Session) beginSilence(ctx context.Context) (end func()) {
	ctx, end = context.WithCancel(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	failure := s.failure // of the previous stream

	after := func(wait grace.Wait, then func()) {
		timer := time.AfterFunc(wait.Left(time.Now()), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if ctx.Err() != nil {
				return
			}
			then()
			if s.failure == failure {
				s.failure = nil
			}
			s.Notify()
		})
		context.AfterFunc(ctx, func() { timer.Stop() })
	}

	gone := inventory.HandlerWait("the Discovery Handler sends a list", time.Now(), s.discoverer.Grace)
	silent := gone
	silent.For, silent.Then = silentAfter, "it has found no device so far"
	after(silent, func() { s.silent = true })
	after(gone, func() {
		s.log.Info("handler has sent no list within the grace", zap.Int("removed_devices", len(s.devices)))
		s.devices, s.answered, s.rejected = nil, true, nil
	})
	return end
}
