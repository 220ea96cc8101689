package instancewriter_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"akri.sh/libs/kube"
	"akri.sh/libs/kube/kubetest"
	"akri.sh/libs/rpc"
	instancev1 "akri.sh/proto/akri/instance/v1"
	instancewriter "akri.sh/services/instance-writer"
)

// keepWatching watches like a node and returns a function that counts the snapshots.
func keepWatching(t *testing.T, r *replica, node string) (snapshots func() int) {
	t.Helper()
	var mu sync.Mutex
	count := 0
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() {
		rpc.Keep(ctx, zap.NewNop(), time.Second, func(ctx context.Context, healthy func()) error {
			watch, err := r.client.WatchInstances(ctx, &instancev1.WatchInstancesRequest{Node: node})
			for err == nil {
				var message *instancev1.WatchInstancesResponse
				if message, err = watch.Recv(); message.GetSnapshot() != nil {
					healthy()
					mu.Lock()
					count++
					mu.Unlock()
				}
			}
			return err
		})
	})
	t.Cleanup(func() { cancel(); watching.Wait() })
	return func() int {
		mu.Lock()
		defer mu.Unlock()
		return count
	}
}

// Connections that reach their age are closed. No call fails, nothing is logged and nothing is
// written.
func TestConnectionAge(t *testing.T) {
	kubetest.NoLeaks(t)
	f := newFixture(t, 2, 1)
	core, logged := observer.New(zap.InfoLevel)
	r := startWith(t, instancewriter.Config{
		Flags: kube.Flags{REST: api.Config()}, NodeGrace: grace, ConnectionAge: time.Second, // and as much for running calls
	}, zap.New(core))
	f.reportShared("foo", r)
	name, node := f.instanceName("foo"), f.nodes[0]
	snapshots := keepWatching(t, r, node)
	before := logged.Len()
	for snapshots() < 3 {
		require.NoError(t, reserve(r, node, claim(name, 0)))
		require.NoError(t, release(r, node, claim(name, 0)))
	}
	writes := r.writes(t)
	f.reportShared("foo", r) // the same report on the next stream
	require.InDelta(t, writes, r.writes(t), 0)
	require.Equal(t, []string{node}, f.get(name).Spec.Nodes)
	require.Empty(t, logged.All()[before:])
}
