package catalog_test

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/broadcast"
	"akri.sh/services/instance-writer/internal/catalog"
	"akri.sh/services/instance-writer/internal/properties"
)

// fakeCluster has Configurations, and Secrets of which the value of each key is "<name>-<version>".
type fakeCluster struct {
	mu             sync.Mutex
	configurations []*akriv0.Configuration
	version        int
	hanging        map[string]chan struct{} // reads of these Secrets
	watches        map[properties.Ref]*watch.FakeWatcher
}

func (c *fakeCluster) Configurations() []*akriv0.Configuration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.configurations
}

func (c *fakeCluster) ConfigurationRevision() uint64 { return 7 }

func (c *fakeCluster) Read(ctx context.Context, ref properties.Ref) (map[string][]byte, error) {
	c.mu.Lock()
	hanging, value := c.hanging[ref.Name], fmt.Sprintf("%s-%d", ref.Name, c.version)
	c.mu.Unlock()
	if hanging != nil {
		select {
		case <-hanging:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return map[string][]byte{"k": []byte(value)}, nil
}

func (c *fakeCluster) Watch(_ context.Context, ref properties.Ref) (watch.Interface, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches[ref] = watch.NewFakeWithChanSize(10, false)
	return c.watches[ref], nil
}

func configuration(name, handler, secret string) *akriv0.Configuration {
	c := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, UID: types.UID(name), Generation: 1}}
	c.Spec.DiscoveryHandler = akriv0.DiscoveryHandler{Name: handler, DiscoveryProperties: []akriv0.DiscoveryProperty{
		{Name: "password", ValueFrom: &akriv0.PropertySource{SecretKeyRef: &akriv0.KeyRef{Name: secret, Key: "k"}}},
	}}
	return c
}

type catalogTest struct {
	*catalog.Catalog
	cluster *fakeCluster
	changed broadcast.Signal
}

// newCatalog returns a Catalog that runs until the end of the test.
func newCatalog(t *testing.T, configurations ...*akriv0.Configuration) *catalogTest {
	t.Helper()
	c := &catalogTest{
		cluster: &fakeCluster{configurations: configurations, hanging: map[string]chan struct{}{}, watches: map[properties.Ref]*watch.FakeWatcher{}},
		changed: broadcast.NewSignal(),
	}
	c.Catalog = catalog.New(c.cluster.Configurations, c.cluster.ConfigurationRevision, func() map[string]string { return nil }, properties.NewStore(zap.NewNop(), c.cluster, c.changed), c.changed)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return c
}

// set replaces the Configurations.
func (c *catalogTest) set(configurations ...*akriv0.Configuration) {
	c.cluster.mu.Lock()
	c.cluster.configurations = configurations
	c.cluster.mu.Unlock()
	c.changed.Notify()
}

func (c *catalogTest) hang(secret string) (end func()) {
	c.cluster.mu.Lock()
	defer c.cluster.mu.Unlock()
	ended := make(chan struct{})
	c.cluster.hanging[secret] = ended
	return func() { close(ended) }
}

// state returns the Snapshot when the Catalog is idle.
func (c *catalogTest) state() catalog.Snapshot {
	synctest.Wait()
	snapshot, _ := c.Get()
	return snapshot
}

func with(handler string) catalog.Receiver {
	return catalog.Receiver{Node: "n", Handlers: map[string]bool{handler: true}}
}

func key(name string) types.NamespacedName { return types.NamespacedName{Namespace: "n", Name: name} }

func password(entry *catalog.Entry) string {
	return string(entry.Full.GetRequest().GetProperties()["password"].GetValue())
}

// A message whose content has not changed is the same message, so that it is not sent again.
func TestMessagesAreReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCatalog(t, configuration("a", "foo", "shared"), configuration("b", "bar", "own"))
		before := c.state()
		require.True(t, before.Complete)
		require.EqualValues(t, 7, before.Revision)
		require.Equal(t, "shared-0", password(before.Entries[key("a")]))
		require.Nil(t, before.Entries[key("a")].Message(with("bar")).GetRequest())
		require.NotNil(t, before.Entries[key("a")].Message(with("foo")).GetRequest())

		withStatus := configuration("a", "foo", "shared")
		withStatus.Status.Devices = 3
		c.set(withStatus, configuration("b", "bar", "own"))
		require.True(t, maps.Equal(before.Entries, c.state().Entries))
		require.Equal(t, before.Version, c.state().Version)

		c.cluster.mu.Lock()
		c.cluster.version++
		c.cluster.watches[properties.Ref{Kind: "Secret", Namespace: "n", Name: "shared"}].Modify(nil)
		c.cluster.mu.Unlock()
		after := c.state()
		require.Equal(t, "shared-1", password(after.Entries[key("a")]))
		require.Greater(t, after.Version, before.Version)
		require.Same(t, before.Entries[key("a")].Public, after.Entries[key("a")].Public)
		require.Same(t, before.Entries[key("b")], after.Entries[key("b")])
		require.Len(t, c.cluster.watches, 2)
	})
}

// A Configuration keeps its Entry until the objects that it names after an edit have been read. A
// new one has no Entry until then, and the Snapshot is not complete.
func TestEntriesWaitForProperties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCatalog(t, configuration("a", "foo", "first"))
		before := c.state()
		end := c.hang("second")
		edited := configuration("a", "foo", "second")
		edited.Generation = 2
		c.set(edited)
		require.True(t, c.state().Complete)
		require.Same(t, before.Entries[key("a")], c.state().Entries[key("a")])
		c.set(edited, configuration("b", "foo", "second"))
		require.False(t, c.state().Complete)
		require.Nil(t, c.state().Entries[key("b")])
		end()
		after := c.state()
		require.True(t, after.Complete)
		require.Equal(t, "second-0", password(after.Entries[key("a")]))
		require.EqualValues(t, 2, after.Entries[key("a")].Public.GetGeneration())
		require.Equal(t, "second-0", password(after.Entries[key("b")]))
		c.set(edited)
		require.Nil(t, c.state().Entries[key("b")])
	})
}

// A finalizer keeps a Configuration that is being deleted. Nodes do not get its later details and
// Secrets.
func TestWhatIsBeingDeletedIsNotDiscovered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCatalog(t, configuration("a", "foo", "own"), configuration("b", "foo", "own"))
		require.Len(t, c.state().Entries, 2)

		deleted := configuration("a", "foo", "foreign")
		deleted.DeletionTimestamp, deleted.Generation = &metav1.Time{}, 2
		c.set(deleted, configuration("b", "foo", "own"))
		state := c.state()
		require.True(t, state.Complete)
		require.Nil(t, state.Entries[key("a")])
		require.NotNil(t, state.Entries[key("b")])
	})
}
