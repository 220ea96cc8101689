package reconcile

import (
	"math/rand/v2"
	"sync"
	"time"
)

// correctionInterval is the minimum time between two corrections of one object without a new report
// or change. It is longer than the keepalive: if replicas disagree, one of them may hold a dead
// stream of the node, which ends meanwhile. It also limits the writes of replicas for which
// the grace period of a node ends at different times.
const correctionInterval = 30 * time.Second

// rateLimit allows burst actions per key at once, and then one per interval.
type rateLimit[K comparable] struct {
	interval time.Duration
	burst    int

	mu sync.Mutex
	// used is the time until which the actions of a key occupy the interval, one after the other.
	used map[K]time.Time
}

func newRateLimit[K comparable](interval time.Duration, burst int) *rateLimit[K] {
	return &rateLimit[K]{interval: interval, burst: burst, used: map[K]time.Time{}}
}

// remaining returns the time until the next action is allowed, at least zero.
func (l *rateLimit[K]) remaining(key K) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(time.Until(l.used[key].Add(-time.Duration(l.burst-1)*l.interval)), 0)
}

// record records an action and drops the records that no longer matter.
func (l *rateLimit[K]) record(key K) { l.recordFor(key, l.interval) }

// recordFor records an action that occupies another interval.
func (l *rateLimit[K]) recordFor(key K, interval time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	for other, until := range l.used {
		if until.Before(now) {
			delete(l.used, other)
		}
	}
	if used := l.used[key]; used.After(now) {
		now = used
	}
	l.used[key] = now.Add(interval)
}

// backoff tracks which objects have new input. An object without new input differs from its desired
// state only because another writer changed it. Corrections of such objects are rate-limited.
type backoff[K comparable] struct {
	corrections *rateLimit[K]

	mu       sync.Mutex
	newInput map[K]bool
}

func newBackoff[K comparable]() *backoff[K] {
	return &backoff[K]{corrections: newRateLimit[K](correctionInterval, 1), newInput: map[K]bool{}}
}

// markNew records new input for the objects.
func (b *backoff[K]) markNew(keys ...K) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range keys {
		b.newInput[key] = true
	}
}

// takeNew reports whether the object has new input, and clears that.
func (b *backoff[K]) takeNew(key K) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	isNew := b.newInput[key]
	delete(b.newInput, key)
	return isNew
}

// remaining returns the time until the next correction is allowed, with jitter. It is zero if a
// correction is allowed now.
func (b *backoff[K]) remaining(key K) time.Duration {
	remaining := b.corrections.remaining(key)
	if remaining == 0 {
		return 0
	}
	return remaining + rand.N(correctionInterval/10)
}
