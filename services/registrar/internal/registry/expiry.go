package registry

import (
	"context"
	"slices"
	"time"

	"go.uber.org/zap"

	"akri.sh/libs/grace"
)

// idleInterval is the time between checks for expired handlers while no handler is offline.
const idleInterval = time.Hour

// Expire removes the handlers whose time offline has ended and returns their keys.
func (t *Table) Expire(now time.Time) []Key {
	var expired []Key
	for key, handler := range t.handlers {
		if handler.Status == Offline && t.offline(handler).Over(now) {
			expired = append(expired, key)
			delete(t.handlers, key)
		}
	}
	slices.SortFunc(expired, compareKeys)
	return expired
}

// NextExpiry returns when the next handler expires. It returns false if no handler is offline.
func (t *Table) NextExpiry() (at time.Time, offline bool) {
	var next grace.Next
	for _, handler := range t.handlers {
		if handler.Status == Offline {
			next.Include(t.offline(handler).Until())
		}
	}
	return next.At, !next.At.IsZero()
}

// offline returns how long the table keeps an offline handler. A restart of the process restarts
// the time: handlers could not register while it was down.
func (t *Table) offline(handler Handler) grace.Wait {
	since := handler.OfflineSince
	if since.Before(t.restored) {
		since = t.restored
	}
	return grace.Wait{Awaited: "the Discovery Handler can be reached", Since: since, For: t.keepOffline, Then: "it is removed"}
}

// RunExpiry removes expired handlers until ctx ends.
func (s *Store) RunExpiry(ctx context.Context) {
	for {
		_, changed := s.Handlers()
		next := s.expire(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-time.After(time.Until(next)):
		}
	}
}

// expire removes expired handlers and returns when to check again if the table does not change
// before.
func (s *Store) expire(now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	expired := s.table.Expire(now)
	for _, key := range expired {
		s.log.Warn("offline discovery handler removed", zap.String("handler", key.Name), zap.String("endpoint", key.Endpoint))
	}
	if len(expired) > 0 {
		s.commit()
	}
	if next, offline := s.table.NextExpiry(); offline {
		return next
	}
	return now.Add(idleInterval)
}
