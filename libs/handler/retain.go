package handler

import (
	"maps"
	"sync"
	"time"
)

// Retained keeps the last good result of each key, for a Poll handler that queries several targets
// over an unreliable network: a lost response does not remove a device. The zero Retained is empty
// and ready to use. It is safe for concurrent use.
//
// A handler calls Record after each request and builds its list from Current. Forget bounds the
// memory when the keys come from the network.
type Retained[T any] struct {
	mu      sync.Mutex
	results map[string]result[T]
}

type result[T any] struct {
	value     T
	succeeded time.Time // time of the last success; zero: never
	recorded  time.Time // time of the last success or failure
	failed    bool      // the last request failed
}

func (r result[T]) fresh(maxAge time.Duration) bool {
	return !r.succeeded.IsZero() && time.Since(r.succeeded) < maxAge
}

// Record stores the value as the last good result of the key. If err is not nil, it records a
// failure instead and keeps the last good value. It reports whether the state changed: the key is
// new, or it changed between success and failure.
func (r *Retained[T]) Record(key string, value T, err error) (changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	previous, exists := r.results[key]
	next := previous
	next.recorded, next.failed = time.Now(), err != nil
	if err == nil {
		next.value, next.succeeded = value, next.recorded
	}
	if r.results == nil {
		r.results = map[string]result[T]{}
	}
	r.results[key] = next
	return !exists || previous.failed != next.failed
}

// Last returns the last good value of the key, however old it is, or the zero value.
func (r *Retained[T]) Last(key string) T {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.results[key].value
}

// Fresh reports whether the last good value of the key is less than maxAge old.
func (r *Retained[T]) Fresh(key string, maxAge time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.results[key].fresh(maxAge)
}

// Due reports whether the key needs a request: its last good value is not less than refresh old,
// and the last request was at least retry ago.
func (r *Retained[T]) Due(key string, refresh, retry time.Duration) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := r.results[key]
	return !last.fresh(refresh) && time.Since(last.recorded) >= retry
}

// Current returns the last good values by key. It leaves out keys whose last request failed and
// whose last good value is at least keep old. A key that has only failed is never included.
func (r *Retained[T]) Current(keep time.Duration) map[string]T {
	r.mu.Lock()
	defer r.mu.Unlock()
	values := map[string]T{}
	for key, last := range r.results {
		if !last.failed || last.fresh(keep) {
			values[key] = last.value
		}
	}
	return values
}

// Forget removes the keys without a Record for longer than maxAge.
func (r *Retained[T]) Forget(maxAge time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.results, func(_ string, last result[T]) bool { return time.Since(last.recorded) > maxAge })
}
