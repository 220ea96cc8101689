package coordinator

import (
	"maps"
	"slices"
	"sync"

	"akri.sh/libs/broadcast"
)

// pending is the set of the keys of the Configurations to reconcile. The Signal wakes the loop,
// which takes all keys at once. A workqueue cannot be waited for together with other channels.
type pending struct {
	broadcast.Signal

	mu   sync.Mutex
	keys map[string]struct{}
}

func newPending() *pending {
	return &pending{Signal: broadcast.NewSignal(), keys: map[string]struct{}{}}
}

func (p *pending) add(key string) {
	p.mu.Lock()
	p.keys[key] = struct{}{}
	p.mu.Unlock()
	p.Notify()
}

// take returns the keys, sorted, and empties the set.
func (p *pending) take() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	keys := slices.Sorted(maps.Keys(p.keys))
	clear(p.keys)
	return keys
}
