package reconcile

import (
	"math/rand/v2"
	"sync"
	"time"
)

// insistEvery is how often an Instance or a status is put right again without news. Longer than the
// keepalive: when another replica thinks otherwise, one of them listens to a stream of the node
// that is dead and does not know it yet. Neither that nor clocks that differ make two replicas
// write against each other for ever.
const insistEvery = 30 * time.Second

// calm knows why an object is looked at: with news to tell, or only since somebody else changed it.
type calm[K comparable] struct {
	mu       sync.Mutex
	news     map[K]bool
	insisted map[K]time.Time
}

func newCalm[K comparable]() *calm[K] {
	return &calm[K]{news: map[K]bool{}, insisted: map[K]time.Time{}}
}

func (c *calm[K]) hear(keys ...K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		c.news[key] = true
	}
}

// take tells whether there is news, which are none any more then.
func (c *calm[K]) take(key K) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	news := c.news[key]
	delete(c.news, key)
	return news
}

// left is how long to wait before the object may be put right once more.
func (c *calm[K]) left(key K) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	left := time.Until(c.insisted[key].Add(insistEvery))
	if left <= 0 {
		return 0
	}
	return left + rand.N(insistEvery/10)
}

func (c *calm[K]) insist(key K) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for other, at := range c.insisted {
		if time.Since(at) > insistEvery {
			delete(c.insisted, other)
		}
	}
	c.insisted[key] = time.Now()
}
