package operator

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	registrarv1 "akri.sh/proto/akri/registrar/v1"
	"akri.sh/services/discovery-operator/internal/discovery"
)

// endpointKey tells handlers apart, as in the registrar's table.
type endpointKey struct{ name, address string }

// endpoint is one entry of the registrar's table, and the connection while a Configuration uses it.
type endpoint struct {
	handler *registrarv1.Handler
	// listed: the table has it now. An endpoint that the table lost while it can be reached is kept: the registrar may
	// have lost its memory, and a handler that answers has not gone.
	listed bool
	link   *discovery.Link // nil while nobody uses it
	users  int
}

// endpoints belong to the coordinator's goroutine alone.
type endpoints struct {
	log     *zap.Logger
	metrics prometheus.Registerer
	grace   time.Duration
	notify  func()
	all     map[endpointKey]*endpoint
}

// adopt takes over a table and returns the endpoints that registered anew.
func (e *endpoints) adopt(table []*registrarv1.Handler) (again []endpointKey) {
	for _, known := range e.all {
		known.listed = false
	}
	for _, handler := range table {
		key := endpointKey{handler.GetName(), handler.GetEndpoint()}
		known := e.all[key]
		if known == nil {
			known = &endpoint{}
			e.all[key] = known
		} else if known.handler.GetRegistration() != handler.GetRegistration() {
			again = append(again, key)
			if known.link != nil {
				known.link.Reconnect()
			}
		}
		known.handler, known.listed = handler, true
	}
	return again
}

// retire removes the endpoints that left the table, unless they can be reached or could be a moment ago. It tells
// whether there were any, and when to look again.
func (e *endpoints) retire(now time.Time) (gone bool, next time.Time) {
	for key, known := range e.all {
		if known.listed {
			continue
		}
		if known.link != nil {
			state, lost, _ := known.link.State(now)
			if state == discovery.Reachable {
				continue
			}
			if graceEnds := lost.Add(e.grace); graceEnds.After(now) {
				next = sooner(next, graceEnds)
				continue
			}
		}
		e.log.Info("discovery handler is gone", zap.String("handler", key.name), zap.String("endpoint", key.address))
		delete(e.all, key)
		gone = true
	}
	return gone, next
}

// of returns the endpoints of a handler.
func (e *endpoints) of(handler string) map[endpointKey]*endpoint {
	found := map[endpointKey]*endpoint{}
	for key, known := range e.all {
		if key.name == handler {
			found[key] = known
		}
	}
	return found
}

// names of the handlers that are registered.
func (e *endpoints) names() []string {
	var names []string
	for key, known := range e.all {
		if known.listed {
			names = append(names, key.name)
		}
	}
	return names
}

// acquire connects when the first user comes.
func (e *endpoints) acquire(ctx context.Context, known *endpoint) error {
	if known.link == nil {
		link, err := discovery.Open(ctx, known.handler, e.metrics, e.notify)
		if err != nil {
			return err
		}
		known.link = link
	}
	known.users++
	return nil
}

// release disconnects when the last user has gone.
func (e *endpoints) release(known *endpoint) {
	known.users--
	if known.users == 0 {
		known.link.Close()
		known.link = nil
	}
}

// reports are the statuses that the table has wrong, and when to look again.
func (e *endpoints) reports(now time.Time) (reports []*registrarv1.HandlerReport, next time.Time) {
	for _, known := range e.all {
		status, settles := known.status(now)
		if !settles.IsZero() {
			next = sooner(next, settles)
		}
		if known.listed && status != known.handler.GetStatus() {
			reports = append(reports, &registrarv1.HandlerReport{
				Name: known.handler.GetName(), Endpoint: known.handler.GetEndpoint(),
				Status: status, Registration: known.handler.GetRegistration(),
			})
		}
	}
	slices.SortFunc(reports, func(a, b *registrarv1.HandlerReport) int {
		return cmp.Or(cmp.Compare(a.GetName(), b.GetName()), cmp.Compare(a.GetEndpoint(), b.GetEndpoint()))
	})
	return reports, next
}

// status is what the table should say, and when that may change by itself. Nobody knows whether an endpoint that is not
// used is there: what was Offline stays so.
func (e *endpoint) status(now time.Time) (registrarv1.HandlerStatus, time.Time) {
	listed := e.handler.GetStatus()
	if e.link == nil {
		if listed == registrarv1.HandlerStatus_HANDLER_STATUS_ACTIVE {
			return registrarv1.HandlerStatus_HANDLER_STATUS_WAITING, time.Time{}
		}
		return listed, time.Time{}
	}
	switch state, _, settles := e.link.State(now); state {
	case discovery.Reachable:
		return registrarv1.HandlerStatus_HANDLER_STATUS_ACTIVE, time.Time{}
	case discovery.Unreachable:
		return registrarv1.HandlerStatus_HANDLER_STATUS_OFFLINE, time.Time{}
	default:
		return listed, settles
	}
}

// sooner is the earlier of two times of which the zero one means never.
func sooner(a, b time.Time) time.Time {
	if a.IsZero() || (!b.IsZero() && b.Before(a)) {
		return b
	}
	return a
}
