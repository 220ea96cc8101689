package registry

import (
	"sync"
	"time"

	"go.uber.org/zap"

	"akri.sh/libs/broadcast"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
)

// Store is a Table that is safe for concurrent use, saved after each change and watched.
type Store struct {
	log      *zap.Logger
	file     string
	handlers broadcast.Value[[]Handler]

	mu    sync.Mutex
	table *Table
}

// OpenStore restores the table from the state file. A file that cannot be used is logged and the
// table starts empty: running handlers register again.
func OpenStore(log *zap.Logger, file string, keepOffline time.Duration) *Store {
	saved, err := Load(file)
	if err != nil {
		log.Error("restoring the handler table failed, starting with an empty one", zap.String("file", file), zap.Error(err))
	}
	s := &Store{log: log, file: file, table: NewTable(keepOffline, time.Now(), saved)}
	s.handlers.Set(s.table.List())
	return s
}

// Handlers returns the handlers, sorted by key, and a channel that is closed when they change.
func (s *Store) Handlers() ([]Handler, <-chan struct{}) { return s.handlers.Get() }

// Register adds a handler and returns whether it is new or was offline before. A handler that no
// Configuration uses registers repeatedly.
func (s *Store) Register(key Key, network, shared bool) (available bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	previous, exists := s.table.Handler(key)
	if err := s.table.Register(key, network, shared); err != nil {
		return false, err
	}
	s.commit()
	return !exists || previous.Status == Offline, nil
}

// Report sets the status of handlers.
func (s *Store) Report(reports []*registrarv1.HandlerReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, changed := time.Now(), false
	for _, report := range reports {
		if s.table.Report(report, now) {
			changed = true
			s.log.Info("discovery handler status changed", zap.String("handler", report.GetName()),
				zap.String("endpoint", report.GetEndpoint()), zap.String("status", StatusName(report.GetStatus())),
				zap.String("reason", causeNames[report.GetOfflineCause()]))
		}
	}
	if changed {
		s.commit()
	}
}

// commit saves the table and publishes it; the lock is held. A table that cannot be saved is still
// served.
func (s *Store) commit() {
	handlers := s.table.List()
	if err := Save(s.file, handlers); err != nil {
		s.log.Error("saving the handler table failed, a restart would lose it", zap.Error(err))
	}
	s.handlers.Set(handlers)
}
