package instancewriter_test

import (
	"net/http"
	"path"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

func TestAnInstanceThatCannotBeWrittenHoldsUpNoOther(t *testing.T) {
	w := newWorld(t, 1, 1)
	other := newWorld(t, 1, 0)
	gate := newProxy(t)
	s := open(t, startAt(t, gate.URL, grace))
	var failing atomic.Bool
	gate.when(func(r *http.Request) bool {
		return r.Method == http.MethodPost && path.Base(r.URL.Path) == "instances" && failing.Load()
	})
	failing.Store(true)
	stuck, fine := w.report(w.nodes[0], w.device("", "foo", true)), other.report(w.nodes[0])
	stuck.Revision, fine.Revision = 1, 2
	require.NoError(t, s.Send(stuck))
	require.NoError(t, s.Send(fine))
	response, err := s.Recv()
	require.NoError(t, err)
	require.EqualValues(t, 2, response.GetRevision())
	failing.Store(false)
	response, err = s.Recv()
	require.NoError(t, err)
	require.EqualValues(t, 1, response.GetRevision())
	require.Empty(t, response.GetRefusals())
	require.False(t, w.gone(w.shared("foo")))
}

func TestNothingIsSaidOfASpecThatNoNodeHasAnswered(t *testing.T) {
	w := newWorld(t, 1, 1)
	s := open(t, start(t, grace))
	ready := func() metav1.Condition {
		for _, condition := range w.status().Conditions {
			if condition.Type == akriv0.ConditionReady {
				return condition
			}
		}
		return metav1.Condition{}
	}
	waiting := w.report(w.nodes[0])
	waiting.Complete, waiting.ConfigurationGeneration = false, 1
	s.tell(waiting)
	w.eventually("status", func() bool { return ready().Reason != "" })
	require.Equal(t, metav1.ConditionUnknown, ready().Status)
	require.Zero(t, w.status().ObservedGeneration)
	done := w.report(w.nodes[0])
	done.ConfigurationGeneration = 1
	s.tell(done)
	w.eventually("ready", func() bool { return ready().Status == metav1.ConditionTrue && w.status().ObservedGeneration == 1 })
}
