// Package reviews asks the API server whose a token is and which rights a user has. It keeps the
// answers for some time and limits how many tokens are reviewed.
package reviews

import (
	"context"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/cache"
)

// Kept keeps results of reviews by key. Callers with the same key share a review.
type Kept[V any] struct {
	Options

	results  *cache.LRUExpireCache // of result[V]
	refusals *cache.LRUExpireCache // of error
	calls    singleflight.Group
}

// Options of Kept.
type Options struct {
	// MaxResults and MaxRefusals are the numbers of keys that are kept.
	MaxResults, MaxRefusals int
	// Refused reports whether an error is the answer of the API server. Other errors say nothing
	// about the key.
	Refused func(error) bool
	// RefusalAge is the time for which a key that was refused is not reviewed again.
	RefusalAge time.Duration
	// Interval is the age at which a result is reviewed again.
	Interval time.Duration
	// MaxAge is the age until which a result is valid while the API server does not answer.
	MaxAge time.Duration
	// RetryInterval is the time between two reviews while the API server does not answer.
	RetryInterval time.Duration
}

type result[V any] struct {
	value V
	// next is the time of the next review, until that at which the result is forgotten.
	next, until time.Time
}

// Keep returns a Kept without results.
func Keep[V any](options Options) *Kept[V] {
	return &Kept[V]{
		Options: options,
		results: cache.NewLRUExpireCache(options.MaxResults), refusals: cache.NewLRUExpireCache(options.MaxRefusals),
	}
}

// Known returns the result that is kept.
func (k *Kept[V]) Known(key string) (value V, known bool) {
	latest, known := k.find(key)
	return latest.value, known
}

// Refusal returns the refusal that is kept, or nil.
func (k *Kept[V]) Refusal(key string) error {
	if refusal, found := k.refusals.Get(key); found {
		return refusal.(error)
	}
	return nil
}

// Forget forgets the results that match.
func (k *Kept[V]) Forget(matches func(V) bool) {
	for _, key := range k.results.Keys() {
		if value, known := k.Known(key.(string)); known && matches(value) {
			k.results.Remove(key)
		}
	}
}

// Get returns a result or a refusal that is kept, or those of a review. A result is valid until it
// expires; zero means that it does not expire.
func (k *Kept[V]) Get(
	ctx context.Context, key string, expires time.Time, review func(ctx context.Context, known bool) (V, error),
) (V, error) {
	if value, kept, err := k.kept(key); kept {
		return value, err
	}
	// The review goes on if this caller ends, because others wait for it too.
	call := k.calls.DoChan(key, func() (any, error) {
		if value, kept, err := k.kept(key); kept {
			return value, err // another call has just finished the review
		}
		return k.review(context.WithoutCancel(ctx), key, expires, review)
	})
	select {
	case done := <-call:
		return done.Val.(V), done.Err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

// kept returns false if the key must be reviewed.
func (k *Kept[V]) kept(key string) (value V, kept bool, err error) {
	if latest, known := k.find(key); known && time.Now().Before(latest.next) {
		return latest.value, true, nil
	}
	err = k.Refusal(key)
	return value, err != nil, err
}

func (k *Kept[V]) find(key string) (latest result[V], known bool) {
	if found, ok := k.results.Get(key); ok {
		return found.(result[V]), true
	}
	return latest, false
}

// review reviews the key. A refusal ends a result that is kept.
func (k *Kept[V]) review(
	ctx context.Context, key string, expires time.Time, review func(ctx context.Context, known bool) (V, error),
) (V, error) {
	latest, known := k.find(key)
	value, err := review(ctx, known)
	now := time.Now()
	switch {
	case err == nil:
		latest = result[V]{value, now.Add(k.Interval), now.Add(k.MaxAge)}
		if !expires.IsZero() && expires.Before(latest.until) {
			latest.until = expires
		}
	case k.Refused(err):
		k.results.Remove(key)
		k.refusals.Add(key, err, k.RefusalAge)
		return value, err
	case known:
		latest.next = now.Add(k.RetryInterval)
	default:
		return value, err
	}
	k.results.Add(key, latest, latest.until.Sub(now))
	return latest.value, nil
}
