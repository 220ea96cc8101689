package instancewriter_test

import (
	"context"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/libs/kube"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

func (w *world) events(kind string) int {
	events, err := kube.NewClient(api.Config(), corev1.SchemeGroupVersion.WithResource("events"), corev1.AddToScheme,
		func() *corev1.Event { return &corev1.Event{} }, func() *corev1.EventList { return &corev1.EventList{} })
	require.NoError(w, err)
	list, err := events.In(space).List(w.Context(), metav1.ListOptions{})
	require.NoError(w, err)
	count := 0
	for _, event := range list.Items {
		if event.InvolvedObject.UID == w.configuration.UID && event.Type == kind {
			count++
		}
	}
	return count
}

func reserve(r *replica, node string, claims ...*instancev1.SlotClaim) error {
	_, err := r.client.ReserveSlots(context.Background(), &instancev1.ReserveSlotsRequest{Node: node, Claims: claims})
	return err
}

func TestReserveSaysWhyNot(t *testing.T) {
	w := newWorld(t, 2, 2)
	r := start(t, grace)
	w.see("foo", r)
	name := w.shared("foo")
	require.NoError(t, reserve(r, w.nodes[0], claim(name, 0)))
	require.NoError(t, reserve(r, w.nodes[0], claim(name, 0)), "again is harmless")
	colon := "a:b"
	for title, c := range map[string]struct {
		node   string
		claim  *instancev1.SlotClaim
		code   codes.Code
		reason string
	}{
		"held":           {w.nodes[1], claim(name, 0), codes.FailedPrecondition, "SlotHeld"},
		"out of range":   {w.nodes[1], claim(name, 2), codes.OutOfRange, "SlotOutOfRange"},
		"not listed":     {"stranger", claim(name, 1), codes.FailedPrecondition, "NodeNotListed"},
		"no instance":    {w.nodes[1], claim("nothing", 0), codes.NotFound, "InstanceNotFound"},
		"no node":        {"", claim(name, 0), codes.InvalidArgument, "InvalidRequest"},
		"bad virtual id": {w.nodes[1], &instancev1.SlotClaim{Namespace: space, Instance: name, VirtualId: &colon}, codes.InvalidArgument, "InvalidRequest"},
	} {
		t.Run(title, func(t *testing.T) {
			got := status.Convert(reserve(r, c.node, c.claim))
			require.Equal(t, c.code, got.Code(), got.Message())
			require.Len(t, got.Details(), 1)
			require.Equal(t, c.reason, got.Details()[0].(*errdetails.ErrorInfo).GetReason())
			require.Equal(t, "akri.sh", got.Details()[0].(*errdetails.ErrorInfo).GetDomain())
		})
	}
	require.Equal(t, map[string]string{name + "-0": w.nodes[0], name + "-1": ""}, w.get(name).Spec.DeviceUsage)
}

func TestAReservationCarriesNoRecordOfWhoWroteWhat(t *testing.T) {
	w := newWorld(t, 2, 2)
	r := start(t, grace)
	w.see("foo", r)
	require.NoError(t, reserve(r, w.nodes[0], claim(w.shared("foo"), 0)))
	require.NoError(t, reserve(r, w.nodes[1], claim(w.shared("foo"), 1)))
	require.Empty(t, w.get(w.shared("foo")).ManagedFields)
}

func TestACallOnSeveralInstancesTakesAllOrNothing(t *testing.T) {
	w := newWorld(t, 1, 2)
	r := start(t, grace)
	for _, node := range w.nodes {
		open(t, r).tell(w.report(node, w.device(node, "foo", true), w.device(node, "bar", true)))
	}
	foo, bar := w.shared("foo"), w.shared("bar")
	first, second := min(foo, bar), max(foo, bar)
	require.NoError(t, reserve(r, w.nodes[0], claim(second, 0)))
	require.Equal(t, codes.FailedPrecondition, status.Code(reserve(r, w.nodes[1], claim(first, 0), claim(second, 0))))
	require.Empty(t, w.get(first).Spec.DeviceUsage[first+"-0"])
	require.NoError(t, reserve(r, w.nodes[0], claim(first, 0), claim(second, 0)))
	require.Equal(t, w.nodes[0], w.get(first).Spec.DeviceUsage[first+"-0"])

	release := &instancev1.ReleaseSlotsRequest{Node: w.nodes[0], Claims: []*instancev1.SlotClaim{claim(first, 0), claim(second, 0), claim("gone", 0)}}
	for range 2 {
		response, err := r.client.ReleaseSlots(t.Context(), release)
		require.NoError(t, err)
		require.Len(t, response.GetInstances(), 2)
	}
	require.Empty(t, w.get(second).Spec.DeviceUsage[second+"-0"])
}

func TestManyNodesNeverHoldMoreThanCapacityAlsoWhenAReplicaDies(t *testing.T) {
	noLeaks(t)
	const nodes, capacity = 20, 5
	w := newWorld(t, capacity, nodes)
	survivor, victim := start(t, grace), start(t, grace)
	w.see("foo", survivor)
	name := w.shared("foo")
	var granted atomic.Int64
	var running sync.WaitGroup
	for i, node := range w.nodes {
		running.Go(func() {
			for index := range uint32(capacity) {
				r := []*replica{survivor, victim}[(i+int(index))%2]
				err := reserve(r, node, claim(name, index))
				if r == victim && status.Code(err) != codes.FailedPrecondition && err != nil {
					err = reserve(survivor, node, claim(name, index)) // what a node does when it is not known whether it holds
				}
				if err == nil {
					granted.Add(1)
					return
				}
			}
		})
		if i == nodes/2 {
			running.Go(victim.kill)
		}
	}
	running.Wait()
	require.EqualValues(t, capacity, granted.Load())
	holders := map[string]bool{}
	for _, holder := range w.get(name).Spec.DeviceUsage {
		holders[holder] = true
	}
	require.Len(t, holders, capacity)
	require.NotContains(t, holders, "")
}

func TestAStaleCopyNeverDecides(t *testing.T) {
	w := newWorld(t, 1, 2)
	one, other := start(t, grace), start(t, grace)
	w.see("foo", one, other)
	name := w.shared("foo")
	for i := range 30 { // each replica must see at once what the other wrote
		node := w.nodes[i%2]
		r := []*replica{one, other}[i/2%2]
		require.NoError(t, reserve(r, node, claim(name, 0)))
		back := []*replica{other, one}[i/2%2]
		_, err := back.client.ReleaseSlots(t.Context(), &instancev1.ReleaseSlotsRequest{Node: node, Claims: []*instancev1.SlotClaim{claim(name, 0)}})
		require.NoError(t, err)
		require.Empty(t, w.get(name).Spec.DeviceUsage[name+"-0"])
	}
}

func TestARestartKeepsEverythingAndAnIdleClusterIsNotWritten(t *testing.T) {
	noLeaks(t)
	w := newWorld(t, 2, 2)
	old := start(t, grace)
	w.see("foo", old)
	name := w.shared("foo")
	require.NoError(t, reserve(old, w.nodes[0], claim(name, 0)))
	w.eventually("status", func() bool { return len(w.status().Nodes) == 2 && w.status().Devices == 1 })
	old.kill()
	before, statusBefore := w.get(name), w.status()

	replicas := []*replica{start(t, grace), start(t, grace)}
	w.see("foo", replicas...)
	w.see("foo", replicas...)
	sink := time.NewTimer(3 * time.Second) // idle time is what is tested here
	<-sink.C
	require.Equal(t, before, w.get(name))
	require.Equal(t, statusBefore, w.status())
	require.Zero(t, replicas[0].writes(t)+replicas[1].writes(t))
}

func TestAnAPIServerThatDoesNotAnswerCostsNothing(t *testing.T) {
	w := newWorld(t, 1, 1)
	r := start(t, grace)
	w.see("foo", r)
	name := w.shared("foo")
	require.NoError(t, api.Pause())
	err := reserve(r, w.nodes[0], claim(name, 0))
	require.NoError(t, api.Resume())
	require.Equal(t, codes.Unavailable, status.Code(err), "not known to be written")
	require.NoError(t, reserve(r, w.nodes[0], claim(name, 0)), "so it is repeated")
	require.Equal(t, w.nodes, w.get(name).Spec.Nodes)
	require.Equal(t, w.nodes[0], w.get(name).Spec.DeviceUsage[name+"-0"])
}

func TestWatchTellsWhatConcernsTheNode(t *testing.T) {
	w := newWorld(t, 1, 2)
	one, other := start(t, grace), start(t, grace)
	streams := w.see("foo", one)
	name := w.shared("foo")
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	require.NoError(t, reserve(other, w.nodes[1], claim(name, 0))) // other is up
	watch, err := other.client.WatchInstances(ctx, &instancev1.WatchInstancesRequest{Node: w.nodes[0]})
	require.NoError(t, err)
	first, err := watch.Recv()
	require.NoError(t, err)
	require.Len(t, first.GetSnapshot().GetInstances(), 1)
	last := first.GetSnapshot().GetInstances()[0].GetRevision()
	require.GreaterOrEqual(t, first.GetSnapshot().GetRevision(), last)

	_, err = one.client.ReleaseSlots(ctx, &instancev1.ReleaseSlotsRequest{Node: w.nodes[1], Claims: []*instancev1.SlotClaim{claim(name, 0)}})
	require.NoError(t, err)
	require.NoError(t, reserve(one, w.nodes[0], claim(name, 0)))
	for {
		next, err := watch.Recv()
		require.NoError(t, err)
		if next.GetUpdated().GetSlots()[0].GetHolder().GetNode() == w.nodes[0] {
			last = next.GetUpdated().GetRevision()
			break
		}
	}
	streams[0].tell(w.report(w.nodes[0]))
	for {
		next, err := watch.Recv()
		require.NoError(t, err)
		if next.GetRemoved() != nil {
			require.Equal(t, name, next.GetRemoved().GetName())
			require.Greater(t, next.GetRemoved().GetRevision(), last, "the absence is younger than what was sent")
			break
		}
	}
}

func TestWhatChangesWhileAWatchIsDownIsToldAfterwards(t *testing.T) {
	w := newWorld(t, 1, 1)
	gate := newProxy(t)
	behind, other := startAt(t, gate.URL, grace), start(t, grace)
	w.see("foo", other)
	name := w.shared("foo")
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	watch, err := behind.client.WatchInstances(ctx, &instancev1.WatchInstancesRequest{Node: w.nodes[0]}, grpc.WaitForReady(true))
	require.NoError(t, err)
	_, err = watch.Recv()
	require.NoError(t, err)

	gate.when(func(*http.Request) bool { return true })
	gate.CloseClientConnections()
	require.NoError(t, reserve(other, w.nodes[0], claim(name, 0)))
	gate.when(func(*http.Request) bool { return false })
	for holder := ""; holder != w.nodes[0]; {
		message, err := watch.Recv()
		require.NoError(t, err)
		if slots := message.GetUpdated().GetSlots(); len(slots) == 1 {
			holder = slots[0].GetHolder().GetNode()
		}
	}
}
