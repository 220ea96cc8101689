package registrar

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"akri.sh/services/registrar/internal/registry"
)

// store is the table as the sockets share it: locked, saved after each change, and watched.
type store struct {
	log  *zap.Logger
	file string

	mu      sync.Mutex
	table   *registry.Table
	changed chan struct{} // closed at the next change
}

// openStore restores the table. A state file that cannot be used is no reason not to serve: handlers that live register
// again sooner or later.
func openStore(log *zap.Logger, file string, keepOffline time.Duration) *store {
	former, err := registry.Load(file)
	if err != nil {
		log.Error("the table could not be restored; starting with an empty one", zap.String("file", file), zap.Error(err))
	}
	return &store{log: log, file: file, table: registry.New(keepOffline, time.Now(), former), changed: make(chan struct{})}
}

// snapshot returns the table and a channel that is closed when it is out of date: watchers wait on it and look again, so a
// slow one misses tables in between and never the last.
func (s *store) snapshot() ([]registry.Handler, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.table.List(), s.changed
}

// register tells whether the handler is new or was offline; a handler that nobody uses registers again and again.
func (s *store) register(key registry.Key, network, shared bool) (back bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	former, known := s.table.Handler(key)
	if err := s.table.Register(key, network, shared); err != nil {
		return false, err
	}
	s.commit()
	return !known || former.Status == registry.Offline, nil
}

type report struct {
	key          registry.Key
	registration uint64
	status       registry.Status
}

func (s *store) report(reports []report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, any := time.Now(), false
	for _, r := range reports {
		if s.table.Report(r.key, r.registration, r.status, now) {
			any = true
			s.log.Info("discovery handler changed its status", zap.String("handler", r.key.Name),
				zap.String("endpoint", r.key.Endpoint), zap.String("status", string(r.status)))
		}
	}
	if any {
		s.commit()
	}
}

// expire removes handlers when their time has come, until ctx ends.
func (s *store) expire(ctx context.Context) {
	for {
		next, changed := s.removeExpired()
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-changed:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// removeExpired returns when it should be called again, at the latest.
func (s *store) removeExpired() (time.Time, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	expired := s.table.Expire(time.Now())
	for _, key := range expired {
		s.log.Warn("discovery handler was offline for too long and is removed",
			zap.String("handler", key.Name), zap.String("endpoint", key.Endpoint))
	}
	if len(expired) > 0 {
		s.commit()
	}
	next, any := s.table.NextExpiry()
	if !any {
		next = time.Now().Add(time.Hour)
	}
	return next, s.changed
}

// commit saves and tells; the lock is held. A table that cannot be saved still serves.
func (s *store) commit() {
	if err := registry.Save(s.file, s.table.List()); err != nil {
		s.log.Error("the table could not be saved; a restart would lose it", zap.Error(err))
	}
	close(s.changed)
	s.changed = make(chan struct{})
}
