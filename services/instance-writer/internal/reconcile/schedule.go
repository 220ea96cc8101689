package reconcile

import (
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
)

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
