package reconcile

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/util/sets"
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

// correctionInterval is the minimum time between two corrections of one object. It is longer than
// the keepalive: if replicas disagree, one of them may hold a dead stream of the node, which ends
// meanwhile. It also limits the writes of replicas for which the grace period of a node ends at
// different times.
const correctionInterval = 30 * time.Second

// schedule decides when the objects of a queue are reconciled and written:
//
//   - An object with new input, such as a report or a change of its Configuration, is written at
//     once.
//   - An object without new input differs from its desired state only because another writer has
//     changed it. It is corrected at most once in correctionInterval.
//   - A run can set an interval in which the object is not reconciled again, also not with new
//     input, because it is expensive.
//   - A run can request another one without any change: when a correction was too early, or when
//     the API server has forbidden a write.
//
// The queue repeats a run that has failed.
type schedule[K comparable] struct {
	mu       sync.Mutex
	newInput sets.Set[K]
	// next has no entries whose times have passed.
	next map[K]earliest
}

// earliest are the times before which an object is not reconciled, and not corrected.
type earliest struct{ run, correction time.Time }

// run is one run for an object: what it may do, and what it has done.
type run struct {
	// isNew means that the object has new input.
	isNew bool
	// wait is the time until the object may be written. It is 0 with new input.
	wait time.Duration

	// written means that the run has changed the object.
	written bool
	// refused means that a change was refused and is tried again. The input stays new.
	refused bool
	// interval is the minimum time until the next run.
	interval time.Duration
	// requeueAfter is the time until the next run if nothing changes before. 0: there is none.
	requeueAfter time.Duration
}

func newSchedule[K comparable]() *schedule[K] {
	return &schedule[K]{newInput: sets.New[K](), next: map[K]earliest{}}
}

// markNew records new input for the objects.
func (s *schedule[K]) markNew(keys ...K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newInput.Insert(keys...)
}

// begin starts a run, which must read its input after that. It returns a postponedError if it is
// too early.
func (s *schedule[K]) begin(key K) (run, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.next[key]
	if wait := time.Until(next.run); wait > 0 {
		return run{}, postponedError{wait}
	}
	if s.newInput.Has(key) {
		s.newInput.Delete(key)
		return run{isNew: true}, nil
	}
	if wait := time.Until(next.correction); wait > 0 {
		// The jitter spreads the corrections of several replicas.
		return run{wait: wait + rand.N(correctionInterval/10)}, nil
	}
	return run{}, nil
}

// end records a run. It returns the result of a processFunc.
func (s *schedule[K]) end(key K, run run, err error) (requeueAfter time.Duration, _ error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if run.isNew && (err != nil || run.refused) {
		s.newInput.Insert(key)
	}
	if corrected := run.written && !run.isNew; corrected || run.interval > 0 {
		now := time.Now()
		maps.DeleteFunc(s.next, func(_ K, e earliest) bool { return e.run.Before(now) && e.correction.Before(now) })
		next := s.next[key]
		if corrected {
			next.correction = now.Add(correctionInterval)
		}
		next.run = now.Add(run.interval)
		s.next[key] = next
	}
	if err != nil {
		return 0, err
	}
	return run.requeueAfter, nil
}
