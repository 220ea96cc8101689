// Package registry holds the table of registered Discovery Handlers: Table is the data structure,
// Store adds locking, persistence and watches.
package registry

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	registrarv1 "akri.sh/proto/akri/registrar/v1"
)

// MaxHandlers bounds the table: every process that can reach the registration socket can add
// handlers.
const MaxHandlers = 1000

// ErrFull means that the table holds MaxHandlers handlers.
var ErrFull = errors.New("too many Discovery Handlers are registered")

// Statuses of a handler.
const (
	Waiting = registrarv1.HandlerStatus_HANDLER_STATUS_WAITING
	Active  = registrarv1.HandlerStatus_HANDLER_STATUS_ACTIVE
	Offline = registrarv1.HandlerStatus_HANDLER_STATUS_OFFLINE
)

// SocketMissing is a cause of Offline. Without a cause, the handler does not respond.
const SocketMissing = registrarv1.OfflineCause_OFFLINE_CAUSE_SOCKET_MISSING

// Key identifies a handler: one name may have several endpoints.
type Key struct {
	Name     string `json:"name"`
	Endpoint string `json:"endpoint"`
}

// Handler is one endpoint of one Discovery Handler.
type Handler struct {
	Key
	// Network is true for an endpoint `host:port` and false for the path of a unix socket.
	Network bool                      `json:"network,omitempty"`
	Shared  bool                      `json:"shared,omitempty"`
	Status  registrarv1.HandlerStatus `json:"-"` // the state file has its name
	// OfflineSince is set while the status is Offline.
	OfflineSince time.Time `json:"offlineSince,omitzero"`
	// OfflineCause is set while the status is Offline.
	OfflineCause registrarv1.OfflineCause `json:"-"` // the state file has its name
	// Registration increases each time the handler registers.
	Registration uint64 `json:"registration"`
	// Order increases with each handler that is new in the table. It is 0 in a state file of a
	// version without it.
	Order uint64 `json:"order,omitempty"`
}

// Table holds the handlers of a node. It is not safe for concurrent use.
type Table struct {
	keepOffline time.Duration
	restored    time.Time
	handlers    map[Key]Handler
	order       uint64 // of the handler that was added last
}

// NewTable returns a table with the handlers that were saved before the process started at `now`.
// The table keeps an offline handler for keepOffline.
func NewTable(keepOffline time.Duration, now time.Time, saved []Handler) *Table {
	t := &Table{keepOffline: keepOffline, restored: now, handlers: map[Key]Handler{}}
	for _, handler := range saved {
		t.handlers[handler.Key] = handler
		t.order = max(t.order, handler.Order)
	}
	return t
}

// Register adds a handler, or increases its Registration. An active handler stays active, because
// its Discover stream may still be open.
func (t *Table) Register(key Key, network, shared bool) error {
	previous, exists := t.handlers[key]
	if !exists && len(t.handlers) >= MaxHandlers {
		return fmt.Errorf("%w: %d", ErrFull, MaxHandlers)
	}
	order := previous.Order
	if !exists {
		t.order++
		order = t.order
	}
	status := Waiting
	if previous.Status == Active {
		status = Active
	}
	t.handlers[key] = Handler{
		Key: key, Network: network, Shared: shared, Status: status, Registration: previous.Registration + 1, Order: order,
	}
	return nil
}

// Handler returns the handler with the key.
func (t *Table) Handler(key Key) (Handler, bool) {
	handler, exists := t.handlers[key]
	return handler, exists
}

// Report sets the status of a handler and returns whether it changed. It ignores a report about a
// handler that is not in the table and a report about an older registration.
func (t *Table) Report(report *registrarv1.HandlerReport, now time.Time) (changed bool) {
	key := Key{Name: report.GetName(), Endpoint: report.GetEndpoint()}
	previous, exists := t.handlers[key]
	if !exists || previous.Registration != report.GetRegistration() {
		return false
	}
	handler := previous
	handler.Status, handler.OfflineSince, handler.OfflineCause = report.GetStatus(), time.Time{}, 0
	if handler.Status == Offline {
		handler.OfflineSince, handler.OfflineCause = now, report.GetOfflineCause()
		if previous.Status == Offline {
			handler.OfflineSince = previous.OfflineSince
		}
	}
	t.handlers[key] = handler
	return handler != previous
}

// List returns the handlers, sorted by key.
func (t *Table) List() []Handler {
	list := make([]Handler, 0, len(t.handlers))
	for _, handler := range t.handlers {
		list = append(list, handler)
	}
	slices.SortFunc(list, func(a, b Handler) int { return compareKeys(a.Key, b.Key) })
	return list
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Endpoint, b.Endpoint))
}
