// Package broadcast passes the latest state between goroutines. Readers see the newest value and
// may miss values in between, so nothing is queued.
package broadcast

import "sync"

// Value holds the latest value of a T. The zero Value holds the zero T.
type Value[T any] struct {
	mu      sync.Mutex
	value   T
	changed chan struct{}
}

// Get returns the value and a channel that is closed when a newer value is set.
func (v *Value[T]) Get() (T, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.changed == nil {
		v.changed = make(chan struct{})
	}
	return v.value, v.changed
}

// Set replaces the value and wakes all readers that wait on the channel of Get.
func (v *Value[T]) Set(value T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.value = value
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
}

// Signal notifies one receiver of changes. Receive from it like from any channel. Several
// calls of Notify before the receiver runs count as one.
type Signal chan struct{}

// NewSignal returns a Signal that is not set.
func NewSignal() Signal { return make(Signal, 1) }

// Notify sets the signal. It never blocks.
func (s Signal) Notify() {
	select {
	case s <- struct{}{}:
	default:
	}
}
