package reconcile

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"k8s.io/client-go/util/workqueue"

	"akri.sh/libs/kube"
)

const (
	initialRetry = 20 * time.Millisecond
	maxRetry     = 30 * time.Second
)

// ErrStopped is the error of Waiter.Wait after the queue has stopped.
var ErrStopped = errors.New("stopping")

// postponedError is the error for a key that is not processed yet. It is processed after the delay.
type postponedError struct{ delay time.Duration }

// Error implements error.
func (e postponedError) Error() string { return "postponed for " + e.delay.String() }

// processFunc processes one key. A positive requeueAfter processes the key again after that time. A
// key that fails is retried with backoff, or after the delay of a postponedError.
type processFunc[K comparable] func(ctx context.Context, key K) (requeueAfter time.Duration, err error)

// queue is client-go's workqueue with callers that wait for a run that starts after their call: a
// report is answered when the API server holds its outcome.
type queue[K comparable] struct {
	log     *zap.Logger
	process processFunc[K]
	keys    workqueue.TypedDelayingInterface[K]
	retries workqueue.TypedRateLimiter[K]

	mu      sync.Mutex
	waiting map[K][]waiting
	stopped chan struct{}
}

// waiting is a caller that waits for a key.
type waiting struct {
	processed chan struct{}
	span      trace.SpanContext
}

// newQueue returns a queue that processes keys during run.
func newQueue[K comparable](name string, log *zap.Logger, process processFunc[K]) *queue[K] {
	return &queue[K]{
		log: log.With(zap.String("queue", name)), process: process,
		keys:    workqueue.NewTypedDelayingQueue[K](),
		retries: workqueue.NewTypedItemExponentialFailureRateLimiter[K](initialRetry, maxRetry),
		waiting: map[K][]waiting{},
		stopped: make(chan struct{}),
	}
}

func (q *queue[K]) add(key K) { q.keys.Add(key) }

// Waiter waits until keys are processed.
type Waiter struct {
	processed []chan struct{}
	stopped   chan struct{}
}

// addAndWait adds the keys. The Waiter waits until each is processed successfully by a run that
// starts after this call. The run is part of the trace of the first caller that waits for it.
func (q *queue[K]) addAndWait(ctx context.Context, keys []K) Waiter {
	waiter := Waiter{make([]chan struct{}, len(keys)), q.stopped}
	span := trace.SpanContextFromContext(ctx)
	for i, key := range keys {
		waiter.processed[i] = make(chan struct{})
		q.mu.Lock()
		q.waiting[key] = append(q.waiting[key], waiting{waiter.processed[i], span})
		q.mu.Unlock()
		q.keys.Add(key)
	}
	return waiter
}

// Wait returns when all keys are processed.
func (w Waiter) Wait(ctx context.Context) error {
	for _, processed := range w.processed {
		select {
		case <-processed:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.stopped:
			return ErrStopped
		}
	}
	return nil
}

// run processes keys until ctx ends.
func (q *queue[K]) run(ctx context.Context, workers int) {
	defer close(q.stopped)
	kube.Work(ctx, q.keys, workers, q.processOnce)
}

func (q *queue[K]) processOnce(ctx context.Context, key K) {
	callers := q.callers(key)
	requeueAfter, err := q.process(traced(ctx, callers), key)

	postponed, isPostponed := errors.AsType[postponedError](err)
	switch {
	case isPostponed:
		q.keys.AddAfter(key, postponed.delay)
	case err != nil:
		// The jitter spreads retries, so that replicas whose writes conflicted do not conflict
		// again.
		delay := q.retries.When(key)
		q.keys.AddAfter(key, delay/2+rand.N(delay/2+1))
		q.log.Debug("reconciling failed", zap.Any("key", key), zap.Error(err), zap.Int("attempt", q.retries.NumRequeues(key)))
	default:
		q.answer(key, len(callers))
		q.retries.Forget(key)
		if requeueAfter > 0 {
			q.keys.AddAfter(key, requeueAfter)
		}
	}
}

// callers returns the callers that wait for the key, in the order in which they came.
func (q *queue[K]) callers(key K) []waiting {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.waiting[key]
}

// answer ends the waiting of the first callers. The others came during the run.
func (q *queue[K]) answer(key K, first int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, caller := range q.waiting[key][:first] {
		close(caller.processed)
	}
	if q.waiting[key] = q.waiting[key][first:]; len(q.waiting[key]) == 0 {
		delete(q.waiting, key)
	}
}

// traced returns ctx with the span of the first caller that has one.
func traced(ctx context.Context, callers []waiting) context.Context {
	for _, caller := range callers {
		if caller.span.IsValid() {
			return trace.ContextWithSpanContext(ctx, caller.span)
		}
	}
	return ctx
}
