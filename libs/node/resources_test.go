package node_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"akri.sh/libs/node"
	"akri.sh/libs/node/instancetest"
	"akri.sh/libs/rpctest"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

const (
	unspecified  = instancev1.Resources_RESOURCES_UNSPECIFIED
	devicePlugin = instancev1.Resources_RESOURCES_DEVICE_PLUGIN
	dra          = instancev1.Resources_RESOURCES_DRA
)

func TestRunWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := node.NewStore("node-a")
		ctx, cancel := context.WithCancel(t.Context())
		starts, running, ended := 0, false, make(chan error, 1)
		go func() {
			ended <- s.RunWhile(ctx, devicePlugin, func(ctx context.Context) error {
				starts, running = starts+1, true
				<-ctx.Done()
				running = false
				return nil
			})
		}()
		for _, step := range []struct {
			resources instancev1.Resources
			running   bool
			starts    int
		}{
			{unspecified, false, 0},
			{dra, false, 0},
			{devicePlugin, true, 1},
			{devicePlugin, true, 1},
			{unspecified, true, 1},
			{dra, false, 1},
			{unspecified, false, 1},
			{devicePlugin, true, 2},
		} {
			s.SetResources(step.resources)
			s.SetInstances(nil, 0) // a change of the node that is none of the form
			synctest.Wait()
			require.Equal(t, step.running, running, "%+v", step)
			require.Equal(t, step.starts, starts, "%+v", step)
		}
		cancel()
		require.NoError(t, <-ended)
		require.False(t, running)
	})
}

// RunWhile returns what the function returns by itself, also while the form changes.
func TestRunWhileReturns(t *testing.T) {
	failed := errors.New("failed")
	for name, run := range map[string]func(context.Context) error{
		"at once":                func(context.Context) error { return failed },
		"when its context ended": func(ctx context.Context) error { <-ctx.Done(); return failed },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := node.NewStore("node-a")
				s.SetResources(dra)
				ended := make(chan error, 1)
				go func() { ended <- s.RunWhile(t.Context(), dra, run) }()
				synctest.Wait()
				s.SetResources(devicePlugin)
				require.ErrorIs(t, <-ended, failed)
			})
		})
	}
}

// The last form that instance-writer sent stays in effect while instance-writer is unreachable, and
// while one that does not know a form is reached.
func TestResourcesOfWatch(t *testing.T) {
	writer, address := instancetest.New(), "unix://"+t.TempDir()+"/w"
	serve := func(writer *instancetest.Writer) (stop func()) {
		return rpctest.ServeAt(t, address, func(r grpc.ServiceRegistrar) { instancev1.RegisterInstanceServiceServer(r, writer) })
	}
	stop := serve(writer)
	s := node.NewStore("node-a")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	client := instancev1.NewInstanceServiceClient(rpctest.Dial(t, address))
	go func() { ended <- s.WatchInstances(ctx, client, zap.NewNop()) }()
	defer func() { cancel(); require.NoError(t, <-ended) }()
	await := func(resources instancev1.Resources, instances int) {
		t.Helper()
		for {
			snapshot, changed := s.Get()
			if snapshot.Resources == resources && len(snapshot.Instances()) == instances {
				return
			}
			select {
			case <-changed:
			case <-time.After(10 * time.Second):
				require.FailNow(t, "timeout", "%s %v", snapshot.Resources, snapshot.Instances())
			}
		}
	}

	writer.SetResources(unspecified)
	writer.Put("c-1", "c", 1)
	await(unspecified, 1)
	writer.SetResources(dra)
	await(dra, 1)
	writer.SetResources(devicePlugin)
	await(devicePlugin, 1)
	stop()
	next := instancetest.New()
	next.Put("c-1", "c", 1)
	next.Put("c-2", "c", 1)
	stop = serve(next)
	await(devicePlugin, 2)
	next.SetResources(unspecified)
	next.Put("c-3", "c", 1)
	await(devicePlugin, 3)
	stop()
	writer.SetResources(dra)
	serve(writer)
	await(dra, 3) // the list is older than two of the Instances
}
