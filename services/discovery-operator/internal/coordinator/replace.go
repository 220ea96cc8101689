package coordinator

import (
	"slices"
	"time"

	"go.uber.org/zap"

	"akri.sh/libs/grace"
	"akri.sh/services/discovery-operator/internal/discovery"
)

// A handler on the network gets another address when its Pod is replaced. The list of the new
// endpoint then counts instead of that of the old one, as for a handler that restarts at the same
// endpoint.

// maxOverlap is how long a Pod and its replacement run at the same time. A Pod that is deleted has
// 30 s to terminate by default, and its replacement may start before that.
const maxOverlap = time.Minute

// settleTime is the time until the loss of all endpoints of a node that ends has been noticed.
// Until then, one of them could count as the replacement of another.
const settleTime = time.Second

// replaceGone marks endpoints without a host as replaced if as many new endpoints of the same
// handler can be reached. Fewer could be the replacement of any of them. Each new endpoint replaces
// one other, the newest first. It returns whether anything changed.
func (e *endpoints) replaceGone(now time.Time) (changed bool) {
	gone, added := map[string][]*endpoint{}, map[string][]*endpoint{}
	lostAt := map[string]time.Time{} // the last of those that are gone
	for key, endpoint := range e.byKey {
		if endpoint.conn == nil {
			continue
		}
		status := endpoint.conn.Status(now)
		reachable := status.State == discovery.Reachable
		switch {
		case endpoint.replaced && reachable:
			endpoint.use(now)
			changed = true
		case status.Gone && !endpoint.replaced:
			gone[key.name] = append(gone[key.name], endpoint)
			if status.LostAt.After(lostAt[key.name]) {
				lostAt[key.name] = status.LostAt
			}
		case reachable && !endpoint.replacement:
			added[key.name] = append(added[key.name], endpoint)
		}
	}
	for name, endpoints := range gone {
		settled := grace.Wait{Awaited: "no other endpoint is lost", Since: lostAt[name], For: settleTime, Then: "new endpoints replace it"}
		if !settled.Over(now) {
			e.next.Include(settled.Until())
			continue
		}
		since := lostAt[name].Add(-maxOverlap)
		replacements := slices.DeleteFunc(added[name], func(endpoint *endpoint) bool { return endpoint.added.Before(since) })
		if len(replacements) < len(endpoints) {
			continue
		}
		slices.SortFunc(replacements, func(a, b *endpoint) int { return b.added.Compare(a.added) })
		for i, endpoint := range endpoints {
			endpoint.replaced, replacements[i].replacement = true, true
			e.log.Info("discovery handler has a new endpoint", zap.String("handler", name),
				zap.String("endpoint", replacements[i].handler.GetEndpoint()), zap.String("previous", endpoint.handler.GetEndpoint()))
		}
		changed = true
	}
	return changed
}

// use uses an endpoint again that was replaced.
func (e *endpoint) use(now time.Time) {
	if e.replaced {
		e.replaced, e.replacement, e.added = false, false, now
	}
}
