// Package feed tells watchers which Instances of their node changed. What changed waits in a set: a
// slow watcher misses steps between, never the last state.
package feed

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// maxPending is above any number of Instances that one node can see; a watcher that has more to
// fetch is dead.
const maxPending = 50_000

// Feed spreads changes.
type Feed struct {
	mu       sync.Mutex
	watchers map[string]map[*Watcher]struct{}
}

// Watcher waits for changes of one node's Instances.
type Watcher struct {
	// Ready has an element when Take has something to give, or the watcher has overflown.
	Ready chan struct{}

	feed     *Feed
	node     string
	pending  map[types.NamespacedName]struct{}
	overflow bool
}

// New returns a Feed.
func New() *Feed { return &Feed{watchers: map[string]map[*Watcher]struct{}{}} }

// Watch returns a Watcher that hears every change from now on. Close it.
func (f *Feed) Watch(node string) *Watcher {
	f.mu.Lock()
	defer f.mu.Unlock()
	watcher := &Watcher{Ready: make(chan struct{}, 1), feed: f, node: node, pending: map[types.NamespacedName]struct{}{}}
	if f.watchers[node] == nil {
		f.watchers[node] = map[*Watcher]struct{}{}
	}
	f.watchers[node][watcher] = struct{}{}
	return watcher
}

// Changed tells the watchers of the nodes.
func (f *Feed) Changed(instance types.NamespacedName, nodes ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, node := range nodes {
		for watcher := range f.watchers[node] {
			watcher.add(instance)
		}
	}
}

func (w *Watcher) add(instance types.NamespacedName) {
	if len(w.pending) >= maxPending {
		w.overflow = true
	} else {
		w.pending[instance] = struct{}{}
	}
	select {
	case w.Ready <- struct{}{}:
	default:
	}
}

// Take returns what changed since the last call; false: too much was left waiting.
func (w *Watcher) Take() (changed map[types.NamespacedName]struct{}, ok bool) {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	changed = w.pending
	w.pending = map[types.NamespacedName]struct{}{}
	return changed, !w.overflow
}

// Close ends the watch.
func (w *Watcher) Close() {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	delete(w.feed.watchers[w.node], w)
	if len(w.feed.watchers[w.node]) == 0 {
		delete(w.feed.watchers, w.node)
	}
}
