package instancewriter_test

import (
	"context"
	"net/http"
	"path"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	instancev1 "akri.sh/proto/akri/instance/v1"
)

// holdWrites lets each PUT of the Instance wait until the channel is closed; it is refused then.
func (p *proxy) holdWrites(instance string) (arrived <-chan struct{}, let chan struct{}) {
	came, let := make(chan struct{}, 100), make(chan struct{})
	p.when(func(r *http.Request) bool {
		if r.Method != http.MethodPut || path.Base(r.URL.Path) != instance {
			return false
		}
		came <- struct{}{}
		<-let
		return true
	})
	return came, let
}

func TestAReleaseThatIsStillOnItsWayDoesNotFreeASlotThatIsAskedForAgain(t *testing.T) {
	w := newWorld(t, 1, 1)
	r := start(t, grace)
	w.see("foo", r)
	name := w.shared("foo")
	require.NoError(t, reserve(r, w.nodes[0], claim(name, 0)))
	late := w.get(name) // what a replica writes whose caller has given up
	late.Spec.DeviceUsage[name+"-0"] = ""
	require.NoError(t, reserve(r, w.nodes[0], claim(name, 0)), "the kubelet gave the slot to another pod of the node")
	_, err := w.instances.In(space).Update(t.Context(), late, metav1.UpdateOptions{})
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.Equal(t, w.nodes[0], w.get(name).Spec.DeviceUsage[name+"-0"])
}

func TestAReleaseWhoseCallerIsGoneIsNotTriedAgain(t *testing.T) {
	w := newWorld(t, 1, 1)
	gate := newProxy(t)
	slow, other := startAt(t, gate.URL, grace), start(t, grace)
	w.see("foo", other)
	name := w.shared("foo")
	require.NoError(t, reserve(slow, w.nodes[0], claim(name, 0)))
	var conflicts atomic.Int64
	came, let := make(chan struct{}), make(chan struct{})
	gate.when(func(r *http.Request) bool {
		if r.Method == http.MethodPut && path.Base(r.URL.Path) == name && conflicts.Add(1) == 1 {
			close(came)
			<-let
		}
		return false
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := slow.client.ReleaseSlots(ctx, &instancev1.ReleaseSlotsRequest{Node: w.nodes[0], Claims: []*instancev1.SlotClaim{claim(name, 0)}})
		ended <- err
	}()
	<-came
	cancel()
	require.Error(t, <-ended)
	require.NoError(t, reserve(other, w.nodes[0], claim(name, 0)))
	close(let)
	_, err := slow.client.ReleaseSlots(t.Context(), &instancev1.ReleaseSlotsRequest{Node: "stranger", Claims: []*instancev1.SlotClaim{claim(name, 0)}})
	require.NoError(t, err, "comes after the release is over")
	require.Equal(t, w.nodes[0], w.get(name).Spec.DeviceUsage[name+"-0"])
}

func TestUndoSparesWhatTheCallerHasByAnotherCall(t *testing.T) {
	w := newWorld(t, 1, 1)
	gate := newProxy(t)
	slow, other := startAt(t, gate.URL, grace), start(t, grace)
	node := w.nodes[0]
	open(t, other).tell(w.report(node, w.device(node, "foo", true), w.device(node, "bar", true)))
	first, second := min(w.shared("foo"), w.shared("bar")), max(w.shared("foo"), w.shared("bar"))
	came, let := gate.holdWrites(second)
	ended := make(chan error, 1)
	go func() { ended <- reserve(slow, node, claim(first, 0), claim(second, 0)) }()
	<-came
	require.NoError(t, reserve(other, node, claim(first, 0), claim(second, 0)), "the caller tries again elsewhere")
	close(let)
	require.Error(t, <-ended)
	require.Equal(t, node, w.get(first).Spec.DeviceUsage[first+"-0"])
	require.Equal(t, node, w.get(second).Spec.DeviceUsage[second+"-0"])
}

func TestUndoGivesBackWhatNobodyElseAskedFor(t *testing.T) {
	w := newWorld(t, 1, 1)
	gate := newProxy(t)
	r := startAt(t, gate.URL, grace)
	node := w.nodes[0]
	open(t, r).tell(w.report(node, w.device(node, "foo", true), w.device(node, "bar", true)))
	first, second := min(w.shared("foo"), w.shared("bar")), max(w.shared("foo"), w.shared("bar"))
	_, let := gate.holdWrites(second)
	close(let)
	require.Error(t, reserve(r, node, claim(first, 0), claim(second, 0)))
	require.Empty(t, w.get(first).Spec.DeviceUsage[first+"-0"])
}

func TestAReplicaThatIsKilledBetweenTheWriteAndItsAnswerHasReservedForTheSameHolderOnly(t *testing.T) {
	w := newWorld(t, 1, 2)
	gate := newProxy(t)
	other := start(t, grace)
	w.see("foo", other)
	name := w.shared("foo")
	victim := processes(t, gate.URL, 1)[0]
	written, let := make(chan struct{}), make(chan struct{})
	defer close(let)
	answered := func(r *http.Request) {
		if r.Method == http.MethodPut && path.Base(r.URL.Path) == name {
			close(written)
			<-let
		}
	}
	gate.answered.Store(&answered)
	ended := make(chan error, 1)
	go func() {
		_, err := victim.client.ReserveSlots(context.Background(),
			&instancev1.ReserveSlotsRequest{Node: w.nodes[0], Claims: []*instancev1.SlotClaim{claim(name, 0)}}, grpc.WaitForReady(true))
		ended <- err
	}()
	<-written
	victim.kill()
	require.Equal(t, codes.Unavailable, status.Code(<-ended), "the node does not know")
	require.Equal(t, codes.FailedPrecondition, status.Code(reserve(other, w.nodes[1], claim(name, 0))), "another node is refused")
	require.NoError(t, reserve(other, w.nodes[0], claim(name, 0)), "the same node repeats its call")
	require.Equal(t, w.nodes[0], w.get(name).Spec.DeviceUsage[name+"-0"])
}
