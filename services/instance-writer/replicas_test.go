package instancewriter_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/kube/kubetest"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
)

// countWrites counts the requests of the proxy's replicas that change the fixture's Configuration
// or existing Instances.
func (f *fixture) countWrites(proxy *proxy) *atomic.Int64 {
	var count atomic.Int64
	proxy.rejectIf(func(r *http.Request) bool {
		path := r.URL.Path + "/"
		name := "/" + f.configuration.Name
		if r.Method != http.MethodGet && (strings.Contains(path, name+"-") || strings.Contains(path, name+"/")) {
			count.Add(1)
		}
		return false
	})
	return &count
}

// settle waits until each replica has written three states of another Configuration. The writes of
// one status are a second apart, so the replicas have finished all earlier work by then.
func settle(t *testing.T, replicas ...*replica) {
	t.Helper()
	for _, r := range replicas {
		other := newFixture(t, 1, 1)
		s := openReports(t, r)
		var devices []*discoveryv1.Device
		for range 3 {
			devices = append(devices, other.device("", fmt.Sprintf("d%d", len(devices)), true))
			s.send(other.newReport(other.nodes[0], devices...))
			other.eventually("status", func() bool { return int(other.status().Devices) == len(devices) })
		}
	}
}

// A node has a dead stream to one replica and a new stream to another. The replicas do not
// overwrite each other again and again.
func TestStaleStreamCausesFewWrites(t *testing.T) {
	f := newFixture(t, 1, 1)
	apiProxy := newProxy(t)
	stale, fresh := startAt(t, apiProxy.URL, grace), startAt(t, apiProxy.URL, grace)
	writes := f.countWrites(apiProxy)
	node := f.nodes[0]
	openReports(t, stale).send(f.newReport(node, f.device(node, "foo", true)))
	s := openReports(t, fresh)
	s.send(f.newReport(node, f.device(node, "foo", true)))
	s.send(f.newReport(node))
	settle(t, stale, fresh)
	require.LessOrEqual(t, writes.Load(), int64(20), "including status writes and conflicts")
	require.True(t, f.deleted(f.instanceName("foo")), "the newer stream decides")
}

// Restarted replicas that get the same reports write nothing.
func TestRestartWritesNothing(t *testing.T) {
	kubetest.NoLeaks(t)
	f := newFixture(t, 2, 2)
	old := start(t, grace)
	f.reportShared("foo", old)
	name := f.instanceName("foo")
	require.NoError(t, reserve(old, f.nodes[0], claim(name, 0)))
	f.eventually("status", func() bool { return len(f.status().Nodes) == 2 && f.status().Devices == 1 })
	old.kill()
	instance, status, events := f.get(name), f.status(), f.events("")

	apiProxy := newProxy(t)
	replicas := []*replica{startAt(t, apiProxy.URL, grace), startAt(t, apiProxy.URL, grace)}
	writes := f.countWrites(apiProxy)
	f.reportShared("foo", replicas...)
	f.reportShared("foo", replicas...)
	settle(t, replicas...)
	require.Equal(t, instance, f.get(name))
	require.Equal(t, status, f.status())
	require.Zero(t, writes.Load())
	require.Equal(t, events, f.events(""))
}

// A replica does not decide by its cache, which may lack the writes of another replica.
func TestReplicasSeeEachOthersWrites(t *testing.T) {
	f := newFixture(t, 1, 2)
	replicas := []*replica{start(t, grace), start(t, grace)}
	f.reportShared("foo", replicas...)
	name := f.instanceName("foo")
	for i := range 30 {
		node, reserving, releasing := f.nodes[i%2], replicas[i/2%2], replicas[(i/2+1)%2]
		require.NoError(t, reserve(reserving, node, claim(name, 0)))
		require.NoError(t, release(releasing, node, claim(name, 0)))
		require.Empty(t, f.get(name).Spec.DeviceUsage[name+"-0"])
	}
}
