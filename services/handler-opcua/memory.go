package opcua

import (
	"sync"
	"time"
)

// memory keeps the last good value of each key.
type memory[V any] struct {
	mu  sync.Mutex
	all map[string]remembered[V]
}

type remembered[V any] struct {
	value   V
	good    time.Time // when it was good last; zero: never
	touched time.Time // when it was noted last
	failed  bool
}

func newMemory[V any]() *memory[V] { return &memory[V]{all: map[string]remembered[V]{}} }

// note takes the value, or keeps the one before when there is an error. It tells whether that is news.
func (m *memory[V]) note(key string, value V, err error) (news bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last, known := m.all[key]
	news = !known || last.failed != (err != nil)
	last.touched, last.failed = time.Now(), err != nil
	if err == nil {
		last.value, last.good = value, last.touched
	}
	m.all[key] = last
	return news
}

// get is the last good value, or the zero one.
func (m *memory[V]) get(key string) V {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[key].value
}

func (m *memory[V]) isFresh(key string, within time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[key].isFresh(within)
}

// isDue tells whether it is time for another value, or another attempt.
func (m *memory[V]) isDue(key string, every, again time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.all[key]
	return !last.isFresh(every) && time.Since(last.touched) >= again
}

func (r remembered[V]) isFresh(within time.Duration) bool {
	return !r.good.IsZero() && time.Since(r.good) < within
}

// current are the values that were good when they were noted last, or not long ago.
func (m *memory[V]) current(patience time.Duration) map[string]V {
	m.mu.Lock()
	defer m.mu.Unlock()
	values := map[string]V{}
	for key, last := range m.all {
		if !last.failed || last.isFresh(patience) {
			values[key] = last.value
		}
	}
	return values
}

// forget drops what was not noted for so long.
func (m *memory[V]) forget(after time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, last := range m.all {
		if time.Since(last.touched) > after {
			delete(m.all, key)
		}
	}
}
