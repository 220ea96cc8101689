package batch_test

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/batch"
)

var (
	key     = types.NamespacedName{Namespace: "ns", Name: "i"}
	errFull = errors.New("full")
)

// store holds one Instance, checks resourceVersions and has a cached copy that may be outdated.
type store struct {
	mu             sync.Mutex
	stored, cached *akriv0.Instance
	version        int
	gets, writes   int
	// gate, if not nil, blocks each write until it is closed or sends.
	gate chan struct{}
}

func (s *store) Cached(types.NamespacedName) *akriv0.Instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cached
}

func (s *store) Get(context.Context, types.NamespacedName) (*akriv0.Instance, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gets++
	return s.stored.DeepCopy(), nil
}

func (s *store) Create(_ context.Context, instance *akriv0.Instance) (*akriv0.Instance, error) {
	return s.write("", instance)
}

func (s *store) Update(_ context.Context, instance *akriv0.Instance) (*akriv0.Instance, error) {
	return s.write(instance.ResourceVersion, instance)
}

func (s *store) Delete(_ context.Context, instance *akriv0.Instance) error {
	_, err := s.write(instance.ResourceVersion, nil)
	return err
}

func (s *store) write(version string, instance *akriv0.Instance) (*akriv0.Instance, error) {
	if s.gate != nil {
		<-s.gate
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	current := ""
	if s.stored != nil {
		current = s.stored.ResourceVersion
	}
	if current != version {
		return nil, apierrors.NewConflict(akriv0.InstanceResource.GroupResource(), key.Name, errors.New("changed"))
	}
	s.version++
	s.writes++
	s.stored = instance.DeepCopy()
	if s.stored != nil {
		s.stored.ResourceVersion = strconv.Itoa(s.version)
	}
	s.cached = s.stored
	return s.stored, nil
}

func instance(version string, nodes ...string) *akriv0.Instance {
	return &akriv0.Instance{ObjectMeta: metav1.ObjectMeta{Name: "i", ResourceVersion: version}, Spec: akriv0.InstanceSpec{Nodes: nodes}}
}

func newWriter(s *store) (*batch.Writer, prometheus.Counter) {
	conflicts := prometheus.NewCounter(prometheus.CounterOpts{Name: "c"})
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h"})
	return batch.NewWriter(s, batch.Metrics{Seconds: histogram, Batch: histogram, Conflicts: conflicts}), conflicts
}

// add returns an edit that appends a node. An Instance takes at most three.
func add(node string) batch.Edit {
	return batch.Edit{Exact: true, Apply: func(current *akriv0.Instance) (*akriv0.Instance, error) {
		if current == nil {
			current = instance("")
		}
		if len(current.Spec.Nodes) == 3 {
			return nil, errFull
		}
		current.Spec.Nodes = append(current.Spec.Nodes, node)
		return current, nil
	}}
}

var nothing = func(current *akriv0.Instance) (*akriv0.Instance, error) { return current, nil }

// Edits that arrive during a write share the next write. A refused edit does not affect the others.
func TestEditsShareWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{gate: make(chan struct{})}
		w, _ := newWriter(s)
		errs := make([]error, 6)
		var running sync.WaitGroup
		edit := func(i int) { running.Go(func() { _, errs[i] = w.Edit(t.Context(), key, add(strconv.Itoa(i))) }) }
		edit(0)
		synctest.Wait() // the first edit is being written
		for i := range errs[1:] {
			edit(i + 1)
		}
		synctest.Wait() // the others wait
		close(s.gate)
		running.Wait()
		refused := 0
		for _, err := range errs {
			if err != nil {
				require.ErrorIs(t, err, errFull)
				refused++
			}
		}
		require.Equal(t, 3, refused)
		require.Len(t, s.stored.Spec.Nodes, 3)
		require.Equal(t, 2, s.writes)
	})
}

func TestOutdatedCache(t *testing.T) {
	for name, c := range map[string]struct {
		stored, cached *akriv0.Instance
		edit           batch.Edit
		gets, writes   int
		conflicts      float64
		err            error
	}{
		"a write based on a current cache needs no read":   {instance("1", "a"), instance("1", "a"), add("b"), 0, 1, 0, nil},
		"a write based on an outdated cache is retried":    {instance("2", "a"), instance("1"), add("b"), 1, 1, 1, nil},
		"an exact edit without a write reads the Instance": {instance("1"), instance("1"), batch.Edit{Apply: nothing, Exact: true}, 1, 0, 0, nil},
		"another edit without a write does not":            {instance("1"), instance("1"), batch.Edit{Apply: nothing}, 0, 0, 0, nil},
		"a refusal based on an outdated cache is retried":  {instance("2", "a"), instance("1", "a", "b", "c"), add("b"), 1, 1, 0, nil},
		"a refusal reads the Instance":                     {instance("1", "a", "b", "c"), instance("1", "a", "b", "c"), add("d"), 1, 0, 0, errFull},
		"a deleted Instance is created again":              {nil, instance("1", "a"), add("b"), 1, 1, 1, nil},
		"an existing Instance is updated, not created":     {instance("1", "a"), nil, add("b"), 1, 1, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := &store{stored: c.stored, cached: c.cached, version: 2}
			w, conflicts := newWriter(s)
			_, err := w.Edit(t.Context(), key, c.edit)
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.gets, s.gets)
			require.Equal(t, c.writes, s.writes)
			require.InDelta(t, c.conflicts, testutil.ToFloat64(conflicts), 0)
		})
	}
}

// Finalizers of upstream Akri's agents are removed before the Instance is deleted.
func TestDeleteRemovesAgentFinalizers(t *testing.T) {
	held := instance("1")
	held.Finalizers = []string{"node"}
	s := &store{stored: held, cached: held, version: 1}
	w, _ := newWriter(s)
	got, err := w.Edit(t.Context(), key, batch.Edit{Apply: func(*akriv0.Instance) (*akriv0.Instance, error) { return nil, nil }}) //nolint:nilnil // nil deletes
	require.NoError(t, err)
	require.Nil(t, got)
	require.Nil(t, s.stored)
	require.Equal(t, 2, s.writes)
}

// The end of one caller's context does not affect other callers.
func TestEditCanceledWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{gate: make(chan struct{})}
		w, _ := newWriter(s)
		first := make(chan error, 1)
		go func() { _, err := w.Edit(t.Context(), key, add("a")); first <- err }()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := w.Edit(ctx, key, batch.Edit{Apply: nothing})
		require.ErrorIs(t, err, context.Canceled)
		close(s.gate)
		require.NoError(t, <-first)
		require.Equal(t, []string{"a"}, s.stored.Spec.Nodes)
	})
}

// expiringContext ends right after another goroutine has checked that it has not ended.
type expiringContext struct {
	context.Context
	cancel context.CancelFunc
}

func (c expiringContext) Err() error {
	err := c.Context.Err()
	c.cancel()
	return err
}

// A caller returns while another goroutine still applies its edit. The race detector must not see a
// shared value.
func TestValueOfAbandonedEdit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{gate: make(chan struct{})}
		w, _ := newWriter(s)
		edit := func(ctx context.Context, node string) <-chan int {
			values := make(chan int, 1)
			go func() {
				_, value, _ := batch.EditWithValue(ctx, w, key, true, func(current *akriv0.Instance) (*akriv0.Instance, int, error) {
					changed, err := add(node).Apply(current)
					return changed, 1, err
				})
				values <- value
			}()
			synctest.Wait()
			return values
		}
		first := edit(t.Context(), "a")
		second := edit(t.Context(), "b")
		ctx, cancel := context.WithCancel(t.Context())
		abandoned := edit(expiringContext{ctx, cancel}, "c")
		s.gate <- struct{}{} // the second caller now applies both remaining edits
		require.Zero(t, <-abandoned)
		close(s.gate)
		require.Equal(t, 1, <-first)
		require.Equal(t, 1, <-second)
		require.Equal(t, []string{"a", "b", "c"}, s.stored.Spec.Nodes)
	})
}
