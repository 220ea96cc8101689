package coordinator

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"akri.sh/libs/grace"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	"akri.sh/services/discovery-operator/internal/discovery"
)

// endpointKey identifies an endpoint like the registrar's table.
type endpointKey struct{ name, address string }

// endpoint is one entry of the registrar's table.
type endpoint struct {
	handler *registrarv1.Handler
	// listed is true while the table has the endpoint. An endpoint that can be reached is kept
	// without it: the registrar may have lost its table.
	listed bool
	conn   *discovery.Conn // nil while no session uses it
	users  int
	// unusedState is the state while conn is nil: Connecting until the first probe.
	unusedState discovery.State
	// registeredAt is when the last registration was seen.
	registeredAt time.Time
	socket       *socket // nil for an endpoint on the network

	// See replace.go. added is when the endpoint appeared in the table, zero for the first table.
	added                 time.Time
	replaced, replacement bool
}

// endpoints are all known endpoints of handlers. The goroutine of the Coordinator owns them.
type endpoints struct {
	log           *zap.Logger
	metrics       prometheus.Registerer
	grace         time.Duration
	probeInterval time.Duration
	dial          discovery.Dialer
	notify        func()      // called after each change of a connection
	next          *grace.Next // when a status may change without an event
	byKey         map[endpointKey]*endpoint
}

// adopt applies a table and returns the endpoints that have registered again. The time is zero for
// the first table.
func (e *endpoints) adopt(table []*registrarv1.Handler, now time.Time) (registered []endpointKey) {
	for _, endpoint := range e.byKey {
		endpoint.listed = false
	}
	for _, handler := range table {
		key := endpointKey{handler.GetName(), handler.GetEndpoint()}
		current := e.byKey[key]
		if current == nil {
			current = e.add(key, handler, now)
		} else if current.handler.GetRegistration() != handler.GetRegistration() {
			registered = append(registered, key)
			current.registerAgain(now)
		}
		current.handler, current.listed = handler, true
	}
	return registered
}

func (e *endpoints) add(key endpointKey, handler *registrarv1.Handler, now time.Time) *endpoint {
	added := &endpoint{added: now, registeredAt: now}
	if handler.GetEndpointType() == registrarv1.EndpointType_ENDPOINT_TYPE_UDS {
		added.socket = watchSocket(key.address, e.notify)
	}
	e.byKey[key] = added
	return added
}

// registerAgain connects at once to a handler that has registered again.
func (e *endpoint) registerAgain(now time.Time) {
	e.unusedState, e.registeredAt = discovery.Connecting, now
	e.use(now)
	e.tolerateMissingSocket(now)
	if e.conn != nil {
		e.conn.Reconnect()
	}
}

// remove forgets an endpoint without users.
func (e *endpoints) remove(key endpointKey) {
	if socket := e.byKey[key].socket; socket != nil {
		socket.stop()
	}
	delete(e.byKey, key)
}

// stop ends the watches of all sockets.
func (e *endpoints) stop() {
	for key := range e.byKey {
		e.remove(key)
	}
}

// of returns the endpoints of a handler that are not replaced.
func (e *endpoints) of(handler string) map[endpointKey]*endpoint {
	matching := map[endpointKey]*endpoint{}
	for key, endpoint := range e.byKey {
		if key.name == handler && !endpoint.replaced {
			matching[key] = endpoint
		}
	}
	return matching
}

// handlers returns the names of all handlers, also of those that the registrar does not list any
// more, sorted.
func (e *endpoints) handlers() []string {
	var names []string
	for key := range e.byKey {
		names = append(names, key.name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// names returns the names of the registered handlers.
func (e *endpoints) names() []string {
	var names []string
	for key, endpoint := range e.byKey {
		if endpoint.listed {
			names = append(names, key.name)
		}
	}
	return names
}

// acquire connects for the first user of an endpoint.
func (e *endpoints) acquire(ctx context.Context, endpoint *endpoint) error {
	if endpoint.conn == nil {
		conn, err := discovery.Dial(ctx, e.target(endpoint), e.metrics, e.notify)
		if err != nil {
			return err
		}
		endpoint.conn = conn
	}
	endpoint.users++
	return nil
}

func (e *endpoints) target(endpoint *endpoint) discovery.Target {
	return discovery.Target{Handler: endpoint.handler, ProbeInterval: e.probeInterval, Dial: e.dial}
}

// release disconnects after the last user of an endpoint. The endpoint counts as reachable until
// it is probed, or has had no socket for long enough: Offline returns to Waiting.
func (e *endpoints) release(endpoint *endpoint) {
	endpoint.users--
	if endpoint.users == 0 {
		endpoint.conn.Close()
		endpoint.conn, endpoint.unusedState = nil, discovery.Reachable
		endpoint.tolerateMissingSocket(time.Now())
	}
}

// lookAtSockets updates which sockets are missing. It returns whether a socket of an unused
// endpoint has appeared, which must be probed before it counts as reachable.
func (e *endpoints) lookAtSockets(now time.Time) (appeared bool) {
	for _, endpoint := range e.byKey {
		if endpoint.socket == nil {
			continue
		}
		before := endpoint.socket.missing
		endpoint.socket.look(now, e.target(endpoint).AnswerTime())
		if before != nil && endpoint.socket.missing == nil && endpoint.conn == nil {
			endpoint.unusedState = discovery.Connecting
			appeared = true
		}
	}
	return appeared
}

// reports returns the statuses that differ from the table.
func (e *endpoints) reports(now time.Time) []*registrarv1.HandlerReport {
	var reports []*registrarv1.HandlerReport
	for key, endpoint := range e.byKey {
		status, cause := e.status(endpoint, now)
		if endpoint.listed && (status != endpoint.handler.GetStatus() || cause != endpoint.handler.GetOfflineCause()) {
			reports = append(reports, &registrarv1.HandlerReport{
				Name: key.name, Endpoint: key.address, Status: status, OfflineCause: cause,
				Registration: endpoint.handler.GetRegistration(),
			})
		}
	}
	slices.SortFunc(reports, func(a, b *registrarv1.HandlerReport) int {
		return cmp.Or(cmp.Compare(a.GetName(), b.GetName()), cmp.Compare(a.GetEndpoint(), b.GetEndpoint()))
	})
	return reports
}

// status returns the current status of an endpoint, and its cause if that is Offline. An endpoint
// that is Connecting keeps its status in the table, but an unused one is not Active.
func (e *endpoints) status(endpoint *endpoint, now time.Time) (registrarv1.HandlerStatus, registrarv1.OfflineCause) {
	state, reachable := endpoint.unusedState, registrarv1.HandlerStatus_HANDLER_STATUS_WAITING
	if endpoint.conn != nil {
		status := endpoint.conn.Status(now)
		e.next.Include(status.Deadline)
		state, reachable = status.State, registrarv1.HandlerStatus_HANDLER_STATUS_ACTIVE
	}
	if missing := endpoint.missingSocket(); missing != nil {
		if missing.Over(now) {
			return registrarv1.HandlerStatus_HANDLER_STATUS_OFFLINE, registrarv1.OfflineCause_OFFLINE_CAUSE_SOCKET_MISSING
		}
		e.next.Include(missing.Until())
		if state == discovery.Unreachable {
			state = discovery.Connecting
		}
	}
	listed := endpoint.handler
	switch {
	case state == discovery.Unreachable, endpoint.replaced:
		return registrarv1.HandlerStatus_HANDLER_STATUS_OFFLINE, 0
	case state == discovery.Reachable, endpoint.conn == nil && listed.GetStatus() == registrarv1.HandlerStatus_HANDLER_STATUS_ACTIVE:
		return reachable, 0
	default:
		return listed.GetStatus(), listed.GetOfflineCause()
	}
}

// tolerateMissingSocket gives the handler the whole time again until its socket must exist.
func (e *endpoint) tolerateMissingSocket(now time.Time) {
	if missing := e.missingSocket(); missing != nil {
		missing.Since = now
	}
}

// missingSocket returns how long a missing socket is tolerated, or nil if none is missing.
func (e *endpoint) missingSocket() *grace.Wait {
	if e.socket == nil {
		return nil
	}
	return e.socket.missing
}
