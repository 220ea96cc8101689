// Package latest holds a value of which readers only want the newest: nobody queues what is already out of date.
package latest

import "sync"

// Value is a value that changes. The zero Value holds the zero T.
type Value[T any] struct {
	mu      sync.Mutex
	value   T
	changed chan struct{}
}

// Get returns the value, and a channel that closes when there is a newer one.
func (v *Value[T]) Get() (T, <-chan struct{}) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.changed == nil {
		v.changed = make(chan struct{})
	}
	return v.value, v.changed
}

// Set replaces the value.
func (v *Value[T]) Set(value T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.value = value
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
}
