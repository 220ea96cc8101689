package cluster

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// newUnwatched returns a Cluster without a watch. Tests add to its store what a watch delivers. The
// API server returns the Instance for each request.
func newUnwatched(t *testing.T, instance *akriv0.Instance) *Cluster {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(instance)
	}))
	t.Cleanup(server.Close)
	writes := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "writes"}, []string{"kind", "result"})
	c, err := New(&rest.Config{Host: server.URL}, "default", writes)
	require.NoError(t, err)
	return c
}

func newInstance(version string) *akriv0.Instance {
	return &akriv0.Instance{
		TypeMeta:   metav1.TypeMeta{APIVersion: "akri.sh/v0", Kind: "Instance"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "cam-8120fe", UID: "uid", ResourceVersion: version},
		Spec:       akriv0.InstanceSpec{ConfigurationName: "cam", Nodes: []string{"n"}},
	}
}

// An Instance is created and deleted before the watch delivers its creation.
func TestDeletedBeforeTheWatchShowsIt(t *testing.T) {
	for _, older := range []*akriv0.Instance{nil, newInstance("5")} {
		instance := newInstance("10")
		c := newUnwatched(t, instance)
		if older != nil {
			require.NoError(t, c.Instances.GetStore().Add(older))
		}
		created, err := c.Create(t.Context(), instance)
		require.NoError(t, err)
		require.Equal(t, "10", c.Cached(Key(instance)).ResourceVersion)
		require.NoError(t, c.Delete(t.Context(), created))
		require.Nil(t, c.Cached(Key(instance)))

		require.NoError(t, c.Instances.GetStore().Add(instance))
		c.watched(nil, instance)
		require.Nil(t, c.Cached(Key(instance)), "the watch delivers what was deleted")
		require.Empty(t, c.InstancesIn(GroupOf(instance)))

		gone := newInstance("11")
		require.NoError(t, c.Instances.GetStore().Delete(gone))
		c.watched(instance, nil)
		require.Empty(t, c.written.List())
		require.NoError(t, c.Instances.GetStore().Add(newInstance("12")))
		require.Equal(t, "12", c.Cached(Key(instance)).ResourceVersion)
	}
}

// An Instance is deleted, created and deleted again before the watch delivers any of that.
func TestCreatedAgainBeforeTheWatchShowsIt(t *testing.T) {
	instance := newInstance("10")
	c := newUnwatched(t, instance)
	store := c.Instances.GetStore()
	require.NoError(t, store.Add(newInstance("10")))
	require.NoError(t, c.Delete(t.Context(), newInstance("10")))
	instance.ResourceVersion = "12"
	created, err := c.Create(t.Context(), instance)
	require.NoError(t, err)
	first := newInstance("11")

	deleteFirst := func() {
		require.NoError(t, store.Delete(first))
		c.watched(newInstance("10"), nil)
	}
	deleteFirst()
	require.NotNil(t, c.Cached(Key(instance)), "the watch delivers the deletion of the first")
	require.Len(t, c.InstancesIn(GroupOf(instance)), 1)

	require.NoError(t, store.Add(newInstance("10")))
	require.NoError(t, c.Delete(t.Context(), created))
	deleteFirst()
	require.NoError(t, store.Add(newInstance("12")))
	c.watched(nil, newInstance("12"))
	require.Nil(t, c.Cached(Key(instance)), "the second is deleted, too")
}

// The watch is interrupted, and lists a state in which the Instance no longer exists.
func TestDeletedWhileTheWatchIsInterrupted(t *testing.T) {
	instance := newInstance("10")
	c := newUnwatched(t, instance)
	_, err := c.Create(t.Context(), instance)
	require.NoError(t, err)
	require.NotNil(t, c.Cached(Key(instance)))
	require.NoError(t, c.Instances.GetStore().Replace(nil, "20"))
	require.Nil(t, c.Cached(Key(instance)))
}

// Another replica deletes an Instance, and the watch delivers that, before the response to its
// creation arrives.
func TestDeletedBeforeTheResponse(t *testing.T) {
	instance := newInstance("10")
	c := newUnwatched(t, instance)
	require.NoError(t, c.Instances.GetStore().Add(instance))
	require.NoError(t, c.Instances.GetStore().Delete(newInstance("11")))
	created, err := c.Create(t.Context(), instance)
	require.NoError(t, err)
	require.Nil(t, c.Cached(Key(instance)))
	require.NoError(t, c.Delete(t.Context(), created))
	require.Empty(t, c.written.List())
}
