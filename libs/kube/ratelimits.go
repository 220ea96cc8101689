package kube

import (
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/cache"
)

// RateLimits has a rate limiter for each key.
type RateLimits struct {
	limit rate.Limit
	burst int

	mu       sync.Mutex
	limiters *cache.LRUExpireCache // of *rate.Limiter
}

// NewRateLimits returns RateLimits for a number of keys.
func NewRateLimits(maxKeys int, limit rate.Limit, burst int) *RateLimits {
	return &RateLimits{limit: limit, burst: burst, limiters: cache.NewLRUExpireCache(maxKeys)}
}

// Of returns the limiter of a key. A limiter that has its burst again is forgotten.
func (l *RateLimits) Of(key any) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	limiter, ok := l.limiters.Get(key)
	if !ok {
		limiter = rate.NewLimiter(l.limit, l.burst)
	}
	refill := float64(l.burst) / float64(l.limit) * float64(time.Second)
	l.limiters.Add(key, limiter, 2*time.Duration(refill))
	return limiter.(*rate.Limiter)
}

// Remaining returns the time until a limiter allows something, at least zero.
func Remaining(limiter *rate.Limiter) time.Duration {
	missing := max(0, 1-limiter.Tokens())
	return time.Duration(missing / float64(limiter.Limit()) * float64(time.Second))
}
