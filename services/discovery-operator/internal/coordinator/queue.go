package coordinator

import (
	"maps"
	"slices"
	"sync"

	"akri.sh/libs/broadcast"
)

// queue holds the keys of the Configurations to reconcile. A key that is added twice is reconciled
// once. The Signal wakes the consumer.
type queue struct {
	broadcast.Signal

	mu   sync.Mutex
	keys map[string]struct{}
}

func newQueue() *queue {
	return &queue{Signal: broadcast.NewSignal(), keys: map[string]struct{}{}}
}

func (q *queue) add(key string) {
	q.mu.Lock()
	q.keys[key] = struct{}{}
	q.mu.Unlock()
	q.Notify()
}

// take returns the keys, sorted, and empties the queue.
func (q *queue) take() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	keys := slices.Sorted(maps.Keys(q.keys))
	clear(q.keys)
	return keys
}
