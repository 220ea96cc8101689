package operator

import (
	"maps"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	"akri.sh/services/discovery-operator/internal/inventory"
)

// view is a View with a number that rises whenever it changes.
type view struct {
	inventory.View
	key     string
	version uint64
}

// views are the node's answers to all Configurations. Those who tell them on wait for a change and read them whole.
type views struct {
	mu      sync.Mutex
	all     map[string]view
	version uint64
	ready   bool
	changed chan struct{} // closed at the next change
}

func newViews() *views {
	return &views{all: map[string]view{}, changed: make(chan struct{})}
}

// snapshot returns the views by key, and a channel that is closed when they are out of date. Not ready: there is no
// answer yet, which is not the same as an empty one.
func (v *views) snapshot() (all []view, ready bool, changed <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(v.all)) {
		all = append(all, v.all[key])
	}
	return all, v.ready, v.changed
}

func (v *views) get(key string) inventory.View {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.all[key].View
}

// set tells nobody when the view is as it was.
func (v *views) set(key string, next inventory.View) {
	v.mu.Lock()
	defer v.mu.Unlock()
	former, known := v.all[key]
	if known && proto.Equal(former.Report, next.Report) && proto.Equal(former.Inventory, next.Inventory) {
		return
	}
	v.version++
	v.all[key] = view{View: next, key: key, version: v.version}
	v.tell()
}

func (v *views) remove(key string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, known := v.all[key]; known {
		delete(v.all, key)
		v.tell()
	}
}

// setReady: every Configuration has its view.
func (v *views) setReady() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.ready {
		v.ready = true
		v.tell()
	}
}

// tell wakes those who wait; the lock is held.
func (v *views) tell() {
	close(v.changed)
	v.changed = make(chan struct{})
}
