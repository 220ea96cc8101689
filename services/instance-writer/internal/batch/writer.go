// Package batch writes Instances. A change is an edit: a function from the current Instance to the
// desired one. It is applied to a copy, which is written with the resourceVersion of the current
// Instance. Edits of one Instance that arrive during a write are combined into the next write.
// After a conflict with another writer, the Instance is read again and the same edits are applied
// to it.
package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/tracing"
	"akri.sh/services/instance-writer/internal/slots"
)

const (
	callTimeout = 5 * time.Second
	// maxAttempts is never reached in practice: of the replicas that conflict, one succeeds.
	maxAttempts      = 20
	maxConflictPause = 10 * time.Millisecond
)

// Store reads and writes Instances.
type Store interface {
	// Cached returns a copy that may be outdated but includes the writes of this process, or nil.
	Cached(types.NamespacedName) *akriv0.Instance
	// Get reads the Instance from the API server. It returns nil if the Instance does not exist.
	Get(context.Context, types.NamespacedName) (*akriv0.Instance, error)
	// Create, Update and Delete return a Conflict, AlreadyExists or NotFound error if the Instance
	// has changed.
	Create(context.Context, *akriv0.Instance) (*akriv0.Instance, error)
	Update(context.Context, *akriv0.Instance) (*akriv0.Instance, error)
	Delete(context.Context, *akriv0.Instance) error
}

// Edit is a change of an Instance.
type Edit struct {
	// Apply returns the desired Instance. A nil Instance does not exist. Apply may change and
	// return its argument. An error leaves the Instance unchanged. Apply may run several times, and
	// after the call of Writer.Edit has returned, so it must not write to captured variables.
	Apply func(current *akriv0.Instance) (desired *akriv0.Instance, err error)
	// Exact requires that the result comes from the API server even if no write is needed.
	Exact bool
}

// Metrics of a Writer.
type Metrics struct {
	Seconds   prometheus.Observer
	Batch     prometheus.Observer
	Conflicts prometheus.Counter
}

// Writer writes Instances.
type Writer struct {
	store   Store
	metrics Metrics

	mu      sync.Mutex
	pending map[types.NamespacedName]*pendingEdits
}

// pendingEdits are the edits of one Instance that wait for the next write.
type pendingEdits struct {
	callers int           // the entry of pending is removed with the last one
	writing chan struct{} // has an element during a write
	edits   []*pendingEdit
}

type pendingEdit struct {
	Edit
	// ctx of the caller. An edit is skipped once ctx has ended, because the caller may have
	// requested the opposite since.
	ctx    context.Context //nolint:containedctx // lives as long as the call of Edit
	result *akriv0.Instance
	err    error
	done   chan struct{}
}

// NewWriter returns a Writer.
func NewWriter(store Store, metrics Metrics) *Writer {
	return &Writer{store: store, metrics: metrics, pending: map[types.NamespacedName]*pendingEdits{}}
}

// EditWithValue is Writer.Edit for an apply function that also returns a value. It returns the
// value of the last run of apply, also after an error, or the zero value if ctx has ended.
func EditWithValue[T any](
	ctx context.Context, writer *Writer, key types.NamespacedName, exact bool,
	apply func(current *akriv0.Instance) (desired *akriv0.Instance, value T, err error),
) (*akriv0.Instance, T, error) {
	// When ctx ends first, another goroutine may still set latest. It must not be read then.
	var latest, none T
	instance, err := writer.Edit(ctx, key, Edit{Exact: exact, Apply: func(current *akriv0.Instance) (*akriv0.Instance, error) {
		desired, value, err := apply(current)
		latest = value
		return desired, err
	}})
	if err != nil && ctx.Err() != nil {
		return nil, none, context.Cause(ctx)
	}
	return instance, latest, err
}

// Edit applies the edit and returns the Instance as the API server stores it, or nil if it does not
// exist. When ctx ends first, it is unknown whether the edit is written. An edit whose write has
// not started by then is dropped.
func (w *Writer) Edit(ctx context.Context, key types.NamespacedName, edit Edit) (*akriv0.Instance, error) {
	own := &pendingEdit{Edit: edit, ctx: ctx, done: make(chan struct{})}
	pending := w.add(key, own)
	defer w.leave(key, pending)
	select {
	case <-own.done:
	case pending.writing <- struct{}{}:
		w.writePending(context.WithoutCancel(ctx), key, pending, own)
		<-pending.writing
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return own.result, own.err
}

func (w *Writer) add(key types.NamespacedName, own *pendingEdit) *pendingEdits {
	w.mu.Lock()
	defer w.mu.Unlock()
	pending := w.pending[key]
	if pending == nil {
		pending = &pendingEdits{writing: make(chan struct{}, 1)}
		w.pending[key] = pending
	}
	pending.callers++
	pending.edits = append(pending.edits, own)
	return pending
}

func (w *Writer) leave(key types.NamespacedName, pending *pendingEdits) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if pending.callers--; pending.callers == 0 {
		delete(w.pending, key)
	}
}

// writePending applies all pending edits in one write. It does nothing if an earlier batch included
// own. Only the goroutine that has put the element into pending.writing calls it.
func (w *Writer) writePending(ctx context.Context, key types.NamespacedName, pending *pendingEdits, own *pendingEdit) {
	select {
	case <-own.done:
		return
	default:
	}
	w.mu.Lock()
	batch := pending.edits
	pending.edits = nil
	w.mu.Unlock()
	w.metrics.Batch.Observe(float64(len(batch)))
	err := w.write(ctx, key, batch)
	for _, edit := range batch {
		if err != nil {
			edit.result, edit.err = nil, err
		}
		close(edit.done)
	}
}

// errStale means that the result must not be based on the cached Instance.
var errStale = errors.New("cached Instance may be outdated")

// write repeats until the batch is written or needs no write. An error applies to the whole batch.
func (w *Writer) write(ctx context.Context, key types.NamespacedName, batch []*pendingEdit) error {
	base, cached := w.store.Cached(key), true
	for attempt := range maxAttempts {
		if attempt > 0 {
			var err error
			if base, err = w.read(ctx, key); err != nil {
				return err
			}
			cached = false
		}
		err := w.attempt(ctx, base, cached, batch)
		if err == nil || !retriable(err) {
			return err
		}
		if !errors.Is(err, errStale) {
			w.metrics.Conflicts.Inc()
			time.Sleep(rand.N(maxConflictPause)) //nolint:forbidigo // jitter between writers that conflict
		}
	}
	return fmt.Errorf("write Instance %s: %d conflicts with other writers", key, maxAttempts)
}

func (w *Writer) read(ctx context.Context, key types.NamespacedName) (*akriv0.Instance, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return w.store.Get(ctx, key)
}

// retriable reports whether the write failed because the Instance has changed.
func retriable(err error) bool {
	return errors.Is(err, errStale) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)
}

func (w *Writer) attempt(ctx context.Context, base *akriv0.Instance, cached bool, batch []*pendingEdit) error {
	desired, refused := apply(base, batch)
	unchanged := equality.Semantic.DeepEqual(base, desired)
	exact := slices.ContainsFunc(batch, func(edit *pendingEdit) bool { return edit.Exact })
	if cached && (refused || unchanged && exact) {
		return errStale
	}
	result := base
	if !unchanged {
		var err error
		if result, err = w.save(ctx, base, desired); err != nil {
			return err
		}
	}
	for _, edit := range batch {
		if edit.err == nil {
			edit.result = result
		}
	}
	return nil
}

// apply runs the edits one after the other. refused reports whether an exact edit returned an
// error.
func apply(base *akriv0.Instance, batch []*pendingEdit) (desired *akriv0.Instance, refused bool) {
	desired = base // each edit gets a copy
	for _, edit := range batch {
		if edit.ctx.Err() != nil {
			edit.result, edit.err = nil, context.Cause(edit.ctx)
			continue
		}
		changed, err := edit.Apply(desired.DeepCopy())
		if edit.err = err; err != nil {
			refused = refused || edit.Exact
			continue
		}
		desired = changed
	}
	if desired != nil && desired != base {
		slots.SetStatus(desired)
	}
	return desired, refused
}

// save creates, updates or deletes the Instance.
func (w *Writer) save(ctx context.Context, base, desired *akriv0.Instance) (saved *akriv0.Instance, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ctx, span := tracing.Child(ctx, "write Instance", attribute.String("akri.instance", cmp.Or(desired, base).Name))
	defer func() { tracing.End(span, err) }()
	timer := prometheus.NewTimer(w.metrics.Seconds)
	defer timer.ObserveDuration()
	switch {
	case base == nil:
		return w.store.Create(ctx, desired)
	case desired != nil:
		return w.store.Update(ctx, desired)
	}
	finalizers := akriv0.WithoutAgentFinalizers(base.Finalizers)
	if len(finalizers) < len(base.Finalizers) { // upstream Akri's agents would not remove them
		released := base.DeepCopy()
		released.Finalizers = finalizers
		if base, err = w.store.Update(ctx, released); err != nil {
			return nil, err
		}
	}
	return nil, w.store.Delete(ctx, base)
}
