// Package editor writes Instances. Every change is an edit: a pure function from what the Instance
// is to what it should be, applied to a copy and written under its resourceVersion. Edits of one
// Instance that come while one is being written share the next write. Nobody need be alone: when
// another replica was faster, the Instance is read again and the same edits are applied to what it
// is now.
package editor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

const (
	callTimeout = 5 * time.Second
	// maxAttempts is far above what replicas need: of those that meet one always wins.
	maxAttempts  = 20
	longestPause = 10 * time.Millisecond
)

// Instances is where Instances are kept.
type Instances interface {
	// Cached returns a copy that may be old but has what this process wrote, or nil.
	Cached(types.NamespacedName) *akriv0.Instance
	// Get reads the Instance from the API server; nil: there is none.
	Get(context.Context, types.NamespacedName) (*akriv0.Instance, error)
	// Create, Update and Delete fail with a conflict, AlreadyExists or NotFound when the Instance
	// is not what it was.
	Create(context.Context, *akriv0.Instance) (*akriv0.Instance, error)
	Update(context.Context, *akriv0.Instance) (*akriv0.Instance, error)
	Delete(context.Context, *akriv0.Instance) error
}

// Apply returns what the Instance should be; nil in: it does not exist; nil out: it should not. It
// may change and return what it is given. It may run several times. With an error nothing changes
// for this edit.
type Apply func(current *akriv0.Instance) (*akriv0.Instance, error)

// Edit is one change.
type Edit struct {
	Apply Apply
	// Exact: an answer that needs no write may not come from the cache.
	Exact bool
}

// Metrics of an Editor.
type Metrics struct {
	Seconds   prometheus.Observer
	Batch     prometheus.Observer
	Conflicts prometheus.Counter
}

// Editor writes Instances.
type Editor struct {
	instances Instances
	metrics   Metrics

	mu   sync.Mutex
	desk map[types.NamespacedName]*desk
}

// desk is where the edits of one Instance meet. It exists while somebody is at it.
type desk struct {
	people  int
	turn    chan struct{}
	pending []*pending
}

type pending struct {
	Edit
	// ctx of the one who asked: once it has ended nobody waits for the edit, and somebody may have
	// asked for its opposite.
	ctx    context.Context //nolint:containedctx // an edit waits for others, and lives no longer than its call
	result *akriv0.Instance
	err    error
	done   chan struct{}
}

// New returns an Editor.
func New(instances Instances, metrics Metrics) *Editor {
	return &Editor{instances: instances, metrics: metrics, desk: map[types.NamespacedName]*desk{}}
}

// Edit returns the Instance (nil: none) as the API server holds it with the edit applied. When ctx
// ends first, it is not known whether the edit was written; one that is not under way by then never
// is.
func (e *Editor) Edit(ctx context.Context, key types.NamespacedName, edit Edit) (*akriv0.Instance, error) {
	mine := &pending{Edit: edit, ctx: ctx, done: make(chan struct{})}
	at := e.sit(key, mine)
	defer e.leave(key, at)
	select {
	case <-mine.done:
	case at.turn <- struct{}{}:
		e.write(context.WithoutCancel(ctx), key, at, mine)
		<-at.turn
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return mine.result, mine.err
}

func (e *Editor) sit(key types.NamespacedName, mine *pending) *desk {
	e.mu.Lock()
	defer e.mu.Unlock()
	at := e.desk[key]
	if at == nil {
		at = &desk{turn: make(chan struct{}, 1)}
		e.desk[key] = at
	}
	at.people++
	at.pending = append(at.pending, mine)
	return at
}

func (e *Editor) leave(key types.NamespacedName, at *desk) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if at.people--; at.people == 0 {
		delete(e.desk, key)
	}
}

// write does all that is pending in one write, unless the one who had the turn before has done
// `mine`: the rest is then for those who wait for it. Only the holder of the turn calls it.
func (e *Editor) write(ctx context.Context, key types.NamespacedName, at *desk, mine *pending) {
	select {
	case <-mine.done:
		return
	default:
	}
	e.mu.Lock()
	batch := at.pending
	at.pending = nil
	e.mu.Unlock()
	e.metrics.Batch.Observe(float64(len(batch)))
	err := e.attempts(ctx, key, batch)
	for _, one := range batch {
		if err != nil {
			one.result, one.err = nil, err
		}
		close(one.done)
	}
}

var errAgain = errors.New("read again")

// attempts repeats until the edits are written or need no write. The error concerns the whole
// batch.
func (e *Editor) attempts(ctx context.Context, key types.NamespacedName, batch []*pending) error {
	base, cached := e.instances.Cached(key), true
	for attempt := range maxAttempts {
		if attempt > 0 {
			var err error
			if base, err = e.read(ctx, key); err != nil {
				return err
			}
			cached = false
		}
		err := e.attempt(ctx, base, cached, batch)
		if err == nil || !retriable(err) {
			return err
		}
		if !errors.Is(err, errAgain) {
			e.metrics.Conflicts.Inc()
			time.Sleep(rand.N(longestPause)) //nolint:forbidigo // writers that collided must not meet again
		}
	}
	return fmt.Errorf("write Instance %s: it changed %d times meanwhile", key, maxAttempts)
}

func (e *Editor) read(ctx context.Context, key types.NamespacedName) (*akriv0.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return e.instances.Get(ctx, key)
}

// retriable errors say that the Instance is not what it was thought to be.
func retriable(err error) bool {
	return errors.Is(err, errAgain) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

func (e *Editor) attempt(ctx context.Context, base *akriv0.Instance, cached bool, batch []*pending) error {
	desired, doubtful := apply(base, batch)
	unchanged := equality.Semantic.DeepEqual(base, desired)
	if cached && (doubtful || unchanged && anyExact(batch)) {
		return errAgain
	}
	result := base
	if !unchanged {
		var err error
		if result, err = e.store(ctx, base, desired); err != nil {
			return err
		}
	}
	for _, one := range batch {
		if one.err == nil {
			one.result = result
		}
	}
	return nil
}

func anyExact(batch []*pending) bool {
	for _, one := range batch {
		if one.Exact {
			return true
		}
	}
	return false
}

// apply runs the edits one after the other. Doubtful: an exact edit was refused, or was already
// true, by what may be an old copy.
func apply(base *akriv0.Instance, batch []*pending) (desired *akriv0.Instance, doubtful bool) {
	desired = base.DeepCopy()
	for _, one := range batch {
		if one.ctx.Err() != nil {
			one.result, one.err = nil, context.Cause(one.ctx)
			continue
		}
		changed, err := one.Apply(desired.DeepCopy())
		if one.err = err; err != nil {
			doubtful = doubtful || one.Exact
			continue
		}
		desired = changed
	}
	return desired, doubtful
}

func (e *Editor) store(ctx context.Context, base, desired *akriv0.Instance) (*akriv0.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	timer := prometheus.NewTimer(e.metrics.Seconds)
	defer timer.ObserveDuration()
	switch {
	case base == nil:
		return e.instances.Create(ctx, desired)
	case desired != nil:
		return e.instances.Update(ctx, desired)
	}
	if len(base.Finalizers) > 0 { // left by Akri's agents: the Instance would hang in Terminating
		free := base.DeepCopy()
		free.Finalizers = nil
		var err error
		if base, err = e.instances.Update(ctx, free); err != nil {
			return nil, err
		}
	}
	return nil, e.instances.Delete(ctx, base)
}
