package editor_test

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
	"akri.sh/services/instance-writer/internal/editor"
)

var (
	key     = types.NamespacedName{Namespace: "ns", Name: "i"}
	errFull = errors.New("full")
)

// store is one Instance behind resourceVersions, with a copy that may be old.
type store struct {
	mu             sync.Mutex
	stored, cached *akriv0.Instance
	version        int
	gets, writes   int
	// gate, when set, holds each write until it can be received from.
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
	now := ""
	if s.stored != nil {
		now = s.stored.ResourceVersion
	}
	if now != version {
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

func newEditor(s *store) (*editor.Editor, prometheus.Counter) {
	conflicts := prometheus.NewCounter(prometheus.CounterOpts{Name: "c"})
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h"})
	return editor.New(s, editor.Metrics{Seconds: histogram, Batch: histogram, Conflicts: conflicts}), conflicts
}

// add appends a node, at most three.
func add(node string) editor.Edit {
	return editor.Edit{Exact: true, Apply: func(current *akriv0.Instance) (*akriv0.Instance, error) {
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

func TestEditsThatComeDuringAWriteShareTheNextAndOneThatIsRefusedHurtsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{gate: make(chan struct{})}
		e, _ := newEditor(s)
		errs := make([]error, 6)
		var running sync.WaitGroup
		for i := range errs {
			running.Go(func() { _, errs[i] = e.Edit(t.Context(), key, add(strconv.Itoa(i))) })
		}
		synctest.Wait() // one writes, the others wait
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

func TestOldCopies(t *testing.T) {
	for name, c := range map[string]struct {
		stored, cached *akriv0.Instance
		edit           editor.Edit
		gets, writes   int
		conflicts      float64
		err            error
	}{
		"a write from a fresh copy reads nothing":       {instance("1", "a"), instance("1", "a"), add("b"), 0, 1, 0, nil},
		"a write from an old copy is repeated":          {instance("2", "a"), instance("1"), add("b"), 1, 1, 1, nil},
		"an exact answer without a write is looked up":  {instance("1"), instance("1"), editor.Edit{Apply: nothing, Exact: true}, 1, 0, 0, nil},
		"another answer without a write is not":         {instance("1"), instance("1"), editor.Edit{Apply: nothing}, 0, 0, 0, nil},
		"a refusal by an old copy is none":              {instance("2", "a"), instance("1", "a", "b", "c"), add("b"), 1, 1, 0, nil},
		"a refusal is looked up":                        {instance("1", "a", "b", "c"), instance("1", "a", "b", "c"), add("d"), 1, 0, 0, errFull},
		"a copy of what is gone is created anew":        {nil, instance("1", "a"), add("b"), 1, 1, 1, nil},
		"what exists already is not created but edited": {instance("1", "a"), nil, add("b"), 1, 1, 1, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := &store{stored: c.stored, cached: c.cached, version: 2}
			e, conflicts := newEditor(s)
			_, err := e.Edit(t.Context(), key, c.edit)
			require.ErrorIs(t, err, c.err)
			require.Equal(t, c.gets, s.gets)
			require.Equal(t, c.writes, s.writes)
			require.InDelta(t, c.conflicts, testutil.ToFloat64(conflicts), 0)
		})
	}
}

func TestADeletedInstanceIsFreedOfFinalizersFirst(t *testing.T) {
	held := instance("1")
	held.Finalizers = []string{"node"}
	s := &store{stored: held, cached: held, version: 1}
	e, _ := newEditor(s)
	got, err := e.Edit(t.Context(), key, editor.Edit{Apply: func(*akriv0.Instance) (*akriv0.Instance, error) { return nil, nil }}) //nolint:nilnil // none is an answer
	require.NoError(t, err)
	require.Nil(t, got)
	require.Nil(t, s.stored)
	require.Equal(t, 2, s.writes)
}

func TestACallerThatGoesLeavesTheOthersAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{gate: make(chan struct{})}
		e, _ := newEditor(s)
		first := make(chan error, 1)
		go func() { _, err := e.Edit(t.Context(), key, add("a")); first <- err }()
		synctest.Wait()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := e.Edit(gone, key, editor.Edit{Apply: nothing})
		require.ErrorIs(t, err, context.Canceled)
		close(s.gate)
		require.NoError(t, <-first)
		require.Equal(t, []string{"a"}, s.stored.Spec.Nodes)
	})
}
