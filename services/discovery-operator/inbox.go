package operator

import (
	"maps"
	"slices"
	"sync"

	registrarv1 "akri.sh/proto/akri/registrar/v1"
)

// inbox collects what happened until the coordinator looks: which Configurations to look at again, and the newest table
// of handlers. Nothing waits in a queue, so nothing can pile up, and nothing is late.
type inbox struct {
	wake chan struct{} // capacity 1

	mu    sync.Mutex
	dirty map[string]struct{}
	table *handlerTable
}

type handlerTable struct{ handlers []*registrarv1.Handler }

func newInbox() *inbox {
	return &inbox{wake: make(chan struct{}, 1), dirty: map[string]struct{}{}}
}

// configurationChanged asks for a look at one Configuration.
func (i *inbox) configurationChanged(key string) {
	i.mu.Lock()
	i.dirty[key] = struct{}{}
	i.mu.Unlock()
	i.look()
}

func (i *inbox) handlersChanged(handlers []*registrarv1.Handler) {
	i.mu.Lock()
	i.table = &handlerTable{handlers}
	i.mu.Unlock()
	i.look()
}

// look asks for a look at the handlers.
func (i *inbox) look() {
	select {
	case i.wake <- struct{}{}:
	default:
	}
}

// take empties the inbox; no table: it is as it was.
func (i *inbox) take() (keys []string, table *handlerTable) {
	i.mu.Lock()
	defer i.mu.Unlock()
	keys, table = slices.Sorted(maps.Keys(i.dirty)), i.table
	i.dirty, i.table = map[string]struct{}{}, nil
	return keys, table
}
