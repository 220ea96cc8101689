package coordinator

import (
	"time"

	"go.uber.org/zap"

	"akri.sh/libs/grace"
	"akri.sh/services/discovery-operator/internal/discovery"
	"akri.sh/services/discovery-operator/internal/inventory"
)

// unregistered returns how long a Configuration without handlers keeps its devices: handlers may
// not have registered yet. It returns nil after that, and if there are handlers.
func (c *Coordinator) unregistered(sessions *sessionSet, sources []inventory.Source, now time.Time) *grace.Wait {
	wait := inventory.HandlerWait("the Discovery Handler registers", sessions.since, c.Discoverer.Grace)
	if len(sources) > 0 || wait.Over(now) {
		return nil
	}
	c.next.Include(wait.Until())
	return &wait
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
			if wait := inventory.HandlerWait(inventory.Reachable, status.LostAt, e.grace); !wait.Over(now) {
				e.next.Include(wait.Until())
				continue
			}
		}
		e.log.Info("discovery handler removed", zap.String("handler", key.name), zap.String("endpoint", key.address))
		e.remove(key)
		removed = true
	}
	return removed
}
