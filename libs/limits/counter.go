package limits

import "sync"

// Counter counts what is in use, by key.
type Counter[K comparable] struct {
	mu   sync.Mutex
	used map[K]int
}

// NewCounter returns a Counter at zero.
func NewCounter[K comparable]() *Counter[K] { return &Counter[K]{used: map[K]int{}} }

// Add counts one more. It returns false if the limit is reached. remove can be called several
// times.
func (c *Counter[K]) Add(key K, limit int) (remove func(), ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.used[key] >= limit {
		return nil, false
	}
	c.used[key]++
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.used[key]--; c.used[key] == 0 {
			delete(c.used, key)
		}
	}), true
}

// Keys returns the number of keys with something in use.
func (c *Counter[K]) Keys() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.used)
}
