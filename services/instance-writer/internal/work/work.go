// Package work is a queue of keys that several workers empty: a key that is added again while it
// waits or is worked on is done once more, not twice; one that fails is tried again after a growing
// wait; and a caller can wait until a key has been done with everything that was known when it
// asked.
package work

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/util/workqueue"
)

const (
	firstRetry   = 20 * time.Millisecond
	longestRetry = 30 * time.Second
)

// ErrStopped is the answer to those that wait when the queue stops.
var ErrStopped = errors.New("stopping")

// Do works on one key. A wait above zero asks to do it again then.
type Do[K comparable] func(ctx context.Context, key K) (again time.Duration, err error)

// Queue is a queue of keys.
type Queue[K comparable] struct {
	name  string
	log   *zap.Logger
	do    Do[K]
	queue workqueue.TypedRateLimitingInterface[K]

	mu      sync.Mutex
	waiting map[K][]chan struct{}
	stopped chan struct{}
}

// New returns a queue that nothing works on before Run.
func New[K comparable](name string, log *zap.Logger, do Do[K]) *Queue[K] {
	return &Queue[K]{
		name: name, log: log, do: do,
		queue:   workqueue.NewTypedRateLimitingQueue[K](jittered[K]{workqueue.NewTypedItemExponentialFailureRateLimiter[K](firstRetry, longestRetry)}),
		waiting: map[K][]chan struct{}{},
		stopped: make(chan struct{}),
	}
}

// Add asks for the key to be done.
func (q *Queue[K]) Add(key K) { q.queue.Add(key) }

// Asked is what a caller waits for.
type Asked struct {
	done    []chan struct{}
	stopped chan struct{}
}

// Ask asks for the keys to be done with everything that is known now.
func (q *Queue[K]) Ask(keys []K) Asked {
	asked := Asked{make([]chan struct{}, len(keys)), q.stopped}
	for i, key := range keys {
		asked.done[i] = make(chan struct{})
		q.giveBack(key, asked.done[i:i+1:i+1])
		q.queue.Add(key)
	}
	return asked
}

// Wait returns when all that was asked for is done.
func (a Asked) Wait(ctx context.Context) error {
	for _, one := range a.done {
		select {
		case <-one:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-a.stopped:
			return ErrStopped
		}
	}
	return nil
}

// Run works on keys until ctx ends.
func (q *Queue[K]) Run(ctx context.Context, workers int) error {
	defer close(q.stopped)
	stop := context.AfterFunc(ctx, q.queue.ShutDown)
	defer stop()
	var group errgroup.Group
	for range workers {
		group.Go(func() error {
			for q.next(ctx) {
			}
			return nil
		})
	}
	return group.Wait()
}

func (q *Queue[K]) next(ctx context.Context) bool {
	key, shutdown := q.queue.Get()
	if shutdown {
		return false
	}
	defer q.queue.Done(key)
	waiting := q.take(key)
	again, err := q.do(ctx, key)
	if err != nil {
		q.giveBack(key, waiting)
		q.queue.AddRateLimited(key)
		q.log.Debug("try again", zap.String("queue", q.name), zap.Any("key", key), zap.Error(err), zap.Int("attempt", q.queue.NumRequeues(key)))
		return ctx.Err() == nil
	}
	for _, done := range waiting {
		close(done)
	}
	q.queue.Forget(key)
	if again > 0 {
		q.queue.AddAfter(key, again)
	}
	return ctx.Err() == nil
}

func (q *Queue[K]) take(key K) []chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting := q.waiting[key]
	delete(q.waiting, key)
	return waiting
}

func (q *Queue[K]) giveBack(key K, waiting []chan struct{}) {
	if len(waiting) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting[key] = append(waiting, q.waiting[key]...)
}

// jittered spreads retries, so that replicas that met once do not meet again.
type jittered[K comparable] struct {
	workqueue.TypedRateLimiter[K]
}

// When implements workqueue.TypedRateLimiter.
func (j jittered[K]) When(key K) time.Duration {
	wait := j.TypedRateLimiter.When(key)
	return wait/2 + rand.N(wait/2+1)
}
