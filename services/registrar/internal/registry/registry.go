// Package registry is the table of Discovery Handlers: who registered, and what became of them. It is pure: it knows
// neither sockets nor clocks.
package registry

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// MaxHandlers bounds the table: whoever can reach the registration socket can add to it.
const MaxHandlers = 1000

// ErrFull is the answer to one handler too many.
var ErrFull = errors.New("too many Discovery Handlers are registered")

// Status is what is known of the connection to a handler.
type Status string

// The statuses, as people see them.
const (
	Waiting Status = "Waiting" // no Configuration asks for it
	Active  Status = "Active"  // at least one Configuration uses it
	Offline Status = "Offline" // unreachable
)

// Key tells handlers apart: one name may have several endpoints.
type Key struct {
	Name     string `json:"name"`
	Endpoint string `json:"endpoint"`
}

// Handler is one endpoint of one Discovery Handler.
type Handler struct {
	Key
	// Network: the endpoint is `host:port`; otherwise the path of a unix socket.
	Network bool   `json:"network,omitempty"`
	Shared  bool   `json:"shared,omitempty"`
	Status  Status `json:"status"`
	// OfflineSince is set while the status is Offline.
	OfflineSince time.Time `json:"offlineSince,omitzero"`
	// Registration rises each time the handler registers.
	Registration uint64 `json:"registration"`
}

// Table holds the handlers of a node. It is not safe for concurrent use.
type Table struct {
	keepOffline time.Duration
	restored    time.Time
	handlers    map[Key]Handler
}

// New returns a table that keeps a handler for so long after it went offline. `former` is what a table held before
// the process was restarted at `now`: as no handler could register meanwhile, those that are offline get the whole time
// again.
func New(keepOffline time.Duration, now time.Time, former []Handler) *Table {
	t := &Table{keepOffline: keepOffline, restored: now, handlers: map[Key]Handler{}}
	for _, handler := range former {
		t.handlers[handler.Key] = handler
	}
	return t
}

// Register adds a handler, or takes note that it lives. An active one stays active: its stream may well be open.
func (t *Table) Register(key Key, network, shared bool) error {
	former, known := t.handlers[key]
	if !known && len(t.handlers) >= MaxHandlers {
		return fmt.Errorf("%w: %d", ErrFull, MaxHandlers)
	}
	status := Waiting
	if former.Status == Active {
		status = Active
	}
	t.handlers[key] = Handler{Key: key, Network: network, Shared: shared, Status: status, Registration: former.Registration + 1}
	return nil
}

// Handler returns what the table holds under the key.
func (t *Table) Handler(key Key) (Handler, bool) {
	handler, known := t.handlers[key]
	return handler, known
}

// Report notes the status of a handler and tells whether that changed anything. A report about a handler that is gone, or
// about an older registration, is void.
func (t *Table) Report(key Key, registration uint64, status Status, now time.Time) bool {
	handler, known := t.handlers[key]
	if !known || handler.Registration != registration || handler.Status == status {
		return false
	}
	handler.Status, handler.OfflineSince = status, time.Time{}
	if status == Offline {
		handler.OfflineSince = now
	}
	t.handlers[key] = handler
	return true
}

// Expire removes the handlers that have been offline for too long and returns their keys.
func (t *Table) Expire(now time.Time) []Key {
	var expired []Key
	for key, handler := range t.handlers {
		if handler.Status == Offline && !t.expiry(handler).After(now) {
			expired = append(expired, key)
			delete(t.handlers, key)
		}
	}
	slices.SortFunc(expired, compareKeys)
	return expired
}

// NextExpiry is when Expire has something to do if nothing happens before; false: never.
func (t *Table) NextExpiry() (next time.Time, any bool) {
	for _, handler := range t.handlers {
		if handler.Status != Offline {
			continue
		}
		if at := t.expiry(handler); !any || at.Before(next) {
			next, any = at, true
		}
	}
	return next, any
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

func (t *Table) expiry(handler Handler) time.Time {
	since := handler.OfflineSince
	if since.Before(t.restored) {
		since = t.restored
	}
	return since.Add(t.keepOffline)
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Endpoint, b.Endpoint))
}
