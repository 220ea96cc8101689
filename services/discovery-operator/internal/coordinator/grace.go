package coordinator

import (
	"time"

	"go.uber.org/zap"

	"akri.sh/services/discovery-operator/internal/discovery"
)

// The grace (--handler-grace, five minutes) is the time after which a handler that cannot be
// reached, has not registered, or sends no list, no longer keeps devices in the inventory.

// inGrace returns whether a Configuration without handlers keeps its devices: handlers may not have
// registered yet.
func (c *Coordinator) inGrace(sessions *sessionSet, now time.Time) bool {
	if c.handlers == nil {
		return true
	}
	if end := sessions.since.Add(c.Grace); now.Before(end) {
		c.recheck(end)
		return true
	}
	return false
}

// removeGone removes the endpoints that are not in the table and have been unreachable for the
// grace. It returns whether there were any.
func (e *endpoints) removeGone(now time.Time) (removed bool) {
	for key, endpoint := range e.byKey {
		if endpoint.listed {
			continue
		}
		if endpoint.conn != nil {
			status := endpoint.conn.Status(now)
			if status.State == discovery.Reachable {
				continue
			}
			if end := status.LostAt.Add(e.grace); now.Before(end) {
				e.recheck(end)
				continue
			}
		}
		e.log.Info("discovery handler removed", zap.String("handler", key.name), zap.String("endpoint", key.address))
		delete(e.byKey, key)
		removed = true
	}
	return removed
}
