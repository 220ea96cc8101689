package review

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/cache"
)

const (
	// interval is the age at which a result is reviewed again: the time in which a revoked right or
	// a deleted account takes effect.
	interval = 30 * time.Second
	// maxAge is the age until which a result is valid while the API server does not answer.
	maxAge = 5 * time.Minute
	// retryInterval is the time between two reviews while the API server does not answer.
	retryInterval = 5 * time.Second
	timeout       = 3 * time.Second
)

// kept keeps results of reviews by key. Callers with the same key share a review.
type kept[V any] struct {
	results *cache.LRUExpireCache // of result[V]
	calls   singleflight.Group
}

type result[V any] struct {
	value V
	// next is the time of the next review, until that at which the result is forgotten.
	next, until time.Time
}

func keep[V any](size int) *kept[V] { return &kept[V]{results: cache.NewLRUExpireCache(size)} }

func (k *kept[V]) known(key string) bool {
	_, known := k.results.Get(key)
	return known
}

// get returns a result that is kept, or that of a review. A Refusal ends a result that is kept.
// Other errors do not, because they say nothing about the result.
func (k *kept[V]) get(ctx context.Context, key string, review func(context.Context) (V, error)) (V, error) {
	var none V
	old, known := k.results.Get(key)
	if known && time.Now().Before(old.(result[V]).next) {
		return old.(result[V]).value, nil
	}
	call := k.calls.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
		defer cancel()
		value, err := review(ctx)
		now := time.Now()
		latest := result[V]{value, now.Add(interval), now.Add(maxAge)}
		if err != nil {
			var refusal *Refusal
			if !known || errors.As(err, &refusal) {
				k.results.Remove(key)
				return none, err
			}
			latest = old.(result[V])
			latest.next = now.Add(retryInterval)
		}
		k.results.Add(key, latest, latest.until.Sub(now))
		return latest.value, nil
	})
	select {
	case done := <-call:
		if done.Err != nil {
			return none, done.Err
		}
		return done.Val.(V), nil
	case <-ctx.Done():
		return none, ctx.Err()
	}
}
