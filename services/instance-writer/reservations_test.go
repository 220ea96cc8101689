package instancewriter_test

import (
	"context"
	"net/http"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	instancev1 "akri.sh/proto/akri/instance/v1"
)

// holdWrites blocks each PUT of the Instance until unblock is closed, and rejects it then.
func (p *proxy) holdWrites(instance string) (<-chan struct{}, chan struct{}) {
	arrived, unblock := make(chan struct{}, 100), make(chan struct{})
	p.rejectIf(func(r *http.Request) bool {
		if r.Method != http.MethodPut || path.Base(r.URL.Path) != instance {
			return false
		}
		arrived <- struct{}{}
		<-unblock
		return true
	})
	return arrived, unblock
}

// A late release does not free a slot that was reserved again.
func TestLateReleaseConflicts(t *testing.T) {
	f := newFixture(t, 1, 1)
	r := start(t, grace)
	f.reportShared("foo", r)
	name := f.instanceName("foo")
	require.NoError(t, reserve(r, f.nodes[0], claim(name, 0)))
	late := f.get(name) // as read by a replica whose caller has given up
	late.Spec.DeviceUsage[name+"-0"] = ""
	require.NoError(t, reserve(r, f.nodes[0], claim(name, 0)), "for another Pod of the node")
	_, err := f.instances.In(namespace).Update(t.Context(), late, metav1.UpdateOptions{})
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.Equal(t, f.nodes[0], f.get(name).Spec.DeviceUsage[name+"-0"])
}

func TestAbandonedReleaseIsNotRetried(t *testing.T) {
	f := newFixture(t, 1, 1)
	apiProxy := newProxy(t)
	slow, other := startAt(t, apiProxy.URL, grace), start(t, grace)
	f.reportShared("foo", other)
	name := f.instanceName("foo")
	require.NoError(t, reserve(slow, f.nodes[0], claim(name, 0)))
	var conflicts atomic.Int64
	arrived, unblock := make(chan struct{}), make(chan struct{})
	apiProxy.rejectIf(func(r *http.Request) bool {
		if r.Method == http.MethodPut && path.Base(r.URL.Path) == name && conflicts.Add(1) == 1 {
			close(arrived)
			<-unblock
		}
		return false
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := slow.client.ReleaseSlots(ctx, &instancev1.ReleaseSlotsRequest{Node: f.nodes[0], Claims: []*instancev1.SlotClaim{claim(name, 0)}})
		ended <- err
	}()
	<-arrived
	cancel()
	require.Error(t, <-ended)
	require.NoError(t, reserve(other, f.nodes[0], claim(name, 0)))
	close(unblock)
	require.NoError(t, release(slow, "unlisted", claim(name, 0)), "this call is processed after the abandoned release")
	require.Equal(t, f.nodes[0], f.get(name).Spec.DeviceUsage[name+"-0"])
}

// A failed call does not roll back what its caller has reserved by another call.
func TestRollbackSparesRepeatedCall(t *testing.T) {
	f := newFixture(t, 1, 1)
	apiProxy := newProxy(t)
	slow, other := startAt(t, apiProxy.URL, grace), start(t, grace)
	node := f.nodes[0]
	openReports(t, other).send(f.newReport(node, f.device(node, "foo", true), f.device(node, "bar", true)))
	first, second := min(f.instanceName("foo"), f.instanceName("bar")), max(f.instanceName("foo"), f.instanceName("bar"))
	arrived, unblock := apiProxy.holdWrites(second)
	ended := make(chan error, 1)
	go func() { ended <- reserve(slow, node, claim(first, 0), claim(second, 0)) }()
	<-arrived
	require.NoError(t, reserve(other, node, claim(first, 0), claim(second, 0)), "the caller repeats the call on another replica")
	close(unblock)
	require.Error(t, <-ended)
	require.Equal(t, node, f.get(first).Spec.DeviceUsage[first+"-0"])
	require.Equal(t, node, f.get(second).Spec.DeviceUsage[second+"-0"])
}

func TestRollback(t *testing.T) {
	f := newFixture(t, 1, 1)
	apiProxy := newProxy(t)
	r := startAt(t, apiProxy.URL, grace)
	node := f.nodes[0]
	openReports(t, r).send(f.newReport(node, f.device(node, "foo", true), f.device(node, "bar", true)))
	first, second := min(f.instanceName("foo"), f.instanceName("bar")), max(f.instanceName("foo"), f.instanceName("bar"))
	_, unblock := apiProxy.holdWrites(second)
	close(unblock)
	require.Error(t, reserve(r, node, claim(first, 0), claim(second, 0)))
	require.Empty(t, f.get(first).Spec.DeviceUsage[first+"-0"])
}

// A replica is killed after its write and before its answer. The slot is reserved for the caller.
func TestReplicaKilledAfterWrite(t *testing.T) {
	f := newFixture(t, 1, 2)
	apiProxy := newProxy(t)
	other := start(t, grace)
	f.reportShared("foo", other)
	name := f.instanceName("foo")
	victim := processes(t, apiProxy.URL, 1)[0]
	written, unblock := make(chan struct{}), make(chan struct{})
	defer close(unblock)
	answered := func(r *http.Request) {
		if r.Method == http.MethodPut && path.Base(r.URL.Path) == name {
			close(written)
			<-unblock
		}
	}
	apiProxy.answered.Store(&answered)
	ended := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := victim.client.ReserveSlots(ctx,
			&instancev1.ReserveSlotsRequest{Node: f.nodes[0], Claims: []*instancev1.SlotClaim{claim(name, 0)}}, grpc.WaitForReady(true))
		ended <- err
	}()
	select {
	case <-written:
	case err := <-ended:
		require.FailNow(t, "the call has ended without a write", "error: %v", err)
	}
	victim.kill()
	require.Equal(t, codes.Unavailable, status.Code(<-ended), "the outcome is unknown to the node")
	require.Equal(t, codes.FailedPrecondition, status.Code(reserve(other, f.nodes[1], claim(name, 0))))
	require.NoError(t, reserve(other, f.nodes[0], claim(name, 0)), "the node repeats its call")
	require.Equal(t, f.nodes[0], f.get(name).Spec.DeviceUsage[name+"-0"])
}
