package instancewriter_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/kubetest"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// events returns the messages of the Events of the Configuration with the reason. "": any reason.
func (f *fixture) events(reason string) (messages []string) {
	for _, event := range f.listEvents(reason) {
		messages = append(messages, event.Message)
	}
	return messages
}

func (f *fixture) listEvents(reason string) (found []corev1.Event) {
	events, err := kube.NewClient[corev1.Event, corev1.EventList](
		api.Config(), corev1.SchemeGroupVersion.WithResource("events"))
	require.NoError(f, err)
	list, err := events.In(namespace).List(f.Context(), metav1.ListOptions{})
	require.NoError(f, err)
	for _, event := range list.Items {
		if event.InvolvedObject.UID == f.configuration.UID && (reason == "" || event.Reason == reason) {
			found = append(found, event)
		}
	}
	return found
}

func reserve(r *replica, node string, claims ...*instancev1.SlotClaim) error {
	_, err := r.client.ReserveSlots(context.Background(), &instancev1.ReserveSlotsRequest{Node: node, Claims: claims})
	return err
}

func release(r *replica, node string, claims ...*instancev1.SlotClaim) error {
	_, err := r.client.ReleaseSlots(context.Background(), &instancev1.ReleaseSlotsRequest{Node: node, Claims: claims})
	return err
}

func TestReserveErrors(t *testing.T) {
	f := newFixture(t, 2, 2)
	r := start(t, grace)
	f.reportShared("foo", r)
	name := f.instanceName("foo")
	require.NoError(t, reserve(r, f.nodes[0], claim(name, 0)))
	require.NoError(t, reserve(r, f.nodes[0], claim(name, 0)), "a repeated reservation succeeds")
	colon, empty, uid := "a:b", "", "uid"
	for title, c := range map[string]struct {
		node   string
		claim  *instancev1.SlotClaim
		code   codes.Code
		reason string
	}{
		"held":               {f.nodes[1], claim(name, 0), codes.FailedPrecondition, "SlotHeld"},
		"out of range":       {f.nodes[1], claim(name, 2), codes.OutOfRange, "SlotOutOfRange"},
		"not listed":         {"unlisted", claim(name, 1), codes.NotFound, "InstanceNotFound"},
		"no instance":        {f.nodes[1], claim("nothing", 0), codes.NotFound, "InstanceNotFound"},
		"no node":            {"", claim(name, 0), codes.InvalidArgument, "InvalidRequest"},
		"bad virtual id":     {f.nodes[1], &instancev1.SlotClaim{Namespace: namespace, Instance: name, VirtualId: &colon}, codes.InvalidArgument, "InvalidRequest"},
		"long virtual id":    {f.nodes[1], &instancev1.SlotClaim{Namespace: namespace, Instance: name, VirtualId: new(strings.Repeat("x", 1<<20))}, codes.InvalidArgument, "InvalidRequest"},
		"control characters": {f.nodes[1], &instancev1.SlotClaim{Namespace: namespace, Instance: name, VirtualId: new("\x1b[2J")}, codes.InvalidArgument, "InvalidRequest"},
		"no claim uid":       {f.nodes[1], &instancev1.SlotClaim{Namespace: namespace, Instance: name, ClaimUid: &empty}, codes.InvalidArgument, "InvalidRequest"},
		"two ids": {f.nodes[1], &instancev1.SlotClaim{Namespace: namespace, Instance: name, ClaimUid: &uid, VirtualId: &uid},
			codes.InvalidArgument, "InvalidRequest"},
	} {
		t.Run(title, func(t *testing.T) {
			got := status.Convert(reserve(r, c.node, c.claim))
			require.Equal(t, c.code, got.Code(), got.Message())
			require.Len(t, got.Details(), 1)
			require.Equal(t, c.reason, got.Details()[0].(*errdetails.ErrorInfo).GetReason())
			require.Equal(t, "akri.sh", got.Details()[0].(*errdetails.ErrorInfo).GetDomain())
		})
	}
	require.Equal(t, map[string]string{name + "-0": f.nodes[0], name + "-1": ""}, f.get(name).Spec.DeviceUsage)
}

// The slots of ResourceClaims and of device plugins share the capacity. Each claim releases its
// own.
func TestReserveForClaims(t *testing.T) {
	f := newFixture(t, 2, 1)
	r := start(t, grace)
	f.reportShared("foo", r)
	name := f.instanceName("foo")
	forClaim := func(uid string, index uint32) *instancev1.SlotClaim {
		return &instancev1.SlotClaim{Namespace: namespace, Instance: name, Index: index, ClaimUid: &uid}
	}
	response, err := r.client.ReserveSlots(t.Context(), &instancev1.ReserveSlotsRequest{
		Node: f.nodes[0], Claims: []*instancev1.SlotClaim{forClaim("one", 0)},
	})
	require.NoError(t, err)
	require.Equal(t, "one", response.GetInstances()[0].GetSlots()[0].GetClaim().GetUid())
	require.Equal(t, f.nodes[0], response.GetInstances()[0].GetSlots()[0].GetClaim().GetNode())
	require.ErrorContains(t, reserve(r, f.nodes[0], forClaim("two", 0)), `held by "D:one:`+f.nodes[0]+`"`)
	require.Error(t, reserve(r, f.nodes[0], claim(name, 0)), "a device plugin of the same node")
	require.NoError(t, reserve(r, f.nodes[0], claim(name, 1)))
	require.Error(t, reserve(r, f.nodes[0], forClaim("two", 1)))
	require.NoError(t, release(r, f.nodes[0], forClaim("two", 0), claim(name, 0)))
	require.Equal(t, "D:one:"+f.nodes[0], f.get(name).Spec.DeviceUsage[name+"-0"])
	require.NoError(t, release(r, f.nodes[0], forClaim("one", 0)))
	require.Equal(t, map[string]string{name + "-0": "", name + "-1": f.nodes[0]}, f.get(name).Spec.DeviceUsage)
}

func TestInstancesHaveNoManagedFields(t *testing.T) {
	f := newFixture(t, 2, 2)
	r := start(t, grace)
	f.reportShared("foo", r)
	require.NoError(t, reserve(r, f.nodes[0], claim(f.instanceName("foo"), 0)))
	require.NoError(t, reserve(r, f.nodes[1], claim(f.instanceName("foo"), 1)))
	require.Empty(t, f.get(f.instanceName("foo")).ManagedFields)
}

// The counts of the status are part of the write of the reservation.
func TestReservationIsOneWrite(t *testing.T) {
	f := newFixture(t, 2, 1)
	apiProxy := newProxy(t)
	r := startAt(t, apiProxy.URL, grace)
	f.reportShared("foo", r)
	name := f.instanceName("foo")
	require.Equal(t, akriv0.InstanceStatus{SlotsUsed: 0, SlotsFree: 2}, f.get(name).Status)
	f.eventually("status", func() bool { return f.status().Devices == 1 })
	settle(t, r)
	writes := f.countWrites(apiProxy)
	require.NoError(t, reserve(r, f.nodes[0], claim(name, 0)))
	require.Equal(t, akriv0.InstanceStatus{SlotsUsed: 1, SlotsFree: 1}, f.get(name).Status)
	settle(t, r)
	require.EqualValues(t, 1, writes.Load())
}

func TestReserveIsAllOrNothing(t *testing.T) {
	f := newFixture(t, 1, 2)
	r := start(t, grace)
	for _, node := range f.nodes {
		openReports(t, r).send(f.newReport(node, f.device(node, "foo", true), f.device(node, "bar", true)))
	}
	foo, bar := f.instanceName("foo"), f.instanceName("bar")
	first, second := min(foo, bar), max(foo, bar)
	require.NoError(t, reserve(r, f.nodes[0], claim(second, 0)))
	require.Equal(t, codes.FailedPrecondition, status.Code(reserve(r, f.nodes[1], claim(first, 0), claim(second, 0))))
	require.Empty(t, f.get(first).Spec.DeviceUsage[first+"-0"])
	require.NoError(t, reserve(r, f.nodes[0], claim(first, 0), claim(second, 0)))
	require.Equal(t, f.nodes[0], f.get(first).Spec.DeviceUsage[first+"-0"])

	release := &instancev1.ReleaseSlotsRequest{Node: f.nodes[0], Claims: []*instancev1.SlotClaim{claim(first, 0), claim(second, 0), claim("gone", 0)}}
	for range 2 {
		response, err := r.client.ReleaseSlots(t.Context(), release)
		require.NoError(t, err)
		require.Len(t, response.GetInstances(), 2)
	}
	require.Empty(t, f.get(second).Spec.DeviceUsage[second+"-0"])
}

// A node learns nothing about the devices of other nodes: calls with the name of their Instances
// have the same answers as calls with names that do not exist.
func TestInstancesOfOtherNodesAreUnknown(t *testing.T) {
	f := newFixture(t, 2, 2)
	r := start(t, grace)
	owner, other := f.nodes[0], f.nodes[1]
	device := f.device(owner, "/dev/video0", false)
	openReports(t, r).send(f.newReport(owner, device))
	name := device.GetInstance()
	require.NoError(t, reserve(r, owner, claim(name, 0)))

	answers := func(name string) []string {
		_, reserveErr := r.client.ReserveSlots(t.Context(), &instancev1.ReserveSlotsRequest{Node: other, Claims: []*instancev1.SlotClaim{claim(name, 1)}})
		require.Error(t, reserveErr)
		released, err := r.client.ReleaseSlots(t.Context(), &instancev1.ReleaseSlotsRequest{
			Node: other, Claims: []*instancev1.SlotClaim{claim(name, 0), claim(name, 1)},
		})
		require.NoError(t, err)
		return []string{strings.ReplaceAll(reserveErr.Error(), name, "NAME"), released.String()}
	}
	require.Equal(t, answers("no-such-instance"), answers(name))
	require.Equal(t, owner, f.get(name).Spec.DeviceUsage[name+"-0"])

	released, err := r.client.ReleaseSlots(t.Context(), &instancev1.ReleaseSlotsRequest{Node: owner, Claims: []*instancev1.SlotClaim{claim(name, 0)}})
	require.NoError(t, err)
	require.Len(t, released.GetInstances(), 1)
}

// Nodes that compete for slots never hold more than the capacity, even if a replica is killed.
func TestCompetingReservations(t *testing.T) {
	kubetest.NoLeaks(t)
	const nodes, capacity = 20, 5
	f := newFixture(t, capacity, nodes)
	survivor, victim := start(t, grace), start(t, grace)
	f.reportShared("foo", survivor)
	name := f.instanceName("foo")
	var granted atomic.Int64
	var running sync.WaitGroup
	for i, node := range f.nodes {
		running.Go(func() {
			for index := range uint32(capacity) {
				r := []*replica{survivor, victim}[(i+int(index))%2]
				err := reserve(r, node, claim(name, index))
				if r == victim && status.Code(err) != codes.FailedPrecondition && err != nil {
					// A node repeats a call whose outcome is unknown.
					err = reserve(survivor, node, claim(name, index))
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
	for _, holder := range f.get(name).Spec.DeviceUsage {
		holders[holder] = true
	}
	require.Len(t, holders, capacity)
	require.NotContains(t, holders, "")
}

func TestUnresponsiveAPIServer(t *testing.T) {
	f := newFixture(t, 1, 1)
	r := start(t, grace)
	f.reportShared("foo", r)
	name := f.instanceName("foo")
	require.NoError(t, api.Pause())
	err := reserve(r, f.nodes[0], claim(name, 0))
	require.NoError(t, api.Resume())
	require.Equal(t, codes.Unavailable, status.Code(err))
	require.NoError(t, reserve(r, f.nodes[0], claim(name, 0)))
	require.Equal(t, f.nodes, f.get(name).Spec.Nodes)
	require.Equal(t, f.nodes[0], f.get(name).Spec.DeviceUsage[name+"-0"])
}

func TestWatch(t *testing.T) {
	f := newFixture(t, 1, 2)
	writer, other := start(t, grace), start(t, grace)
	streams := f.reportShared("foo", writer)
	name := f.instanceName("foo")
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	require.NoError(t, reserve(other, f.nodes[1], claim(name, 0))) // other serves
	watch, err := other.client.WatchInstances(ctx, &instancev1.WatchInstancesRequest{Node: f.nodes[0]})
	require.NoError(t, err)
	first, err := watch.Recv()
	require.NoError(t, err)
	require.Len(t, first.GetSnapshot().GetInstances(), 1)
	last := first.GetSnapshot().GetInstances()[0].GetRevision()
	require.GreaterOrEqual(t, first.GetSnapshot().GetRevision(), last)

	require.NoError(t, release(writer, f.nodes[1], claim(name, 0)))
	require.NoError(t, reserve(writer, f.nodes[0], claim(name, 0)))
	for {
		next, err := watch.Recv()
		require.NoError(t, err)
		if next.GetUpdated().GetSlots()[0].GetHolder().GetNode() == f.nodes[0] {
			last = next.GetUpdated().GetRevision()
			break
		}
	}
	streams[0].send(f.newReport(f.nodes[0]))
	for {
		next, err := watch.Recv()
		require.NoError(t, err)
		if next.GetRemoved() != nil {
			require.Equal(t, name, next.GetRemoved().GetName())
			require.Greater(t, next.GetRemoved().GetRevision(), last, "the removal is newer than the last update")
			break
		}
	}
}

// Changes that a replica missed while it was disconnected from the API server are sent later.
func TestWatchAfterDisconnect(t *testing.T) {
	f := newFixture(t, 1, 1)
	apiProxy := newProxy(t)
	behind, other := startAt(t, apiProxy.URL, grace), start(t, grace)
	f.reportShared("foo", other)
	name := f.instanceName("foo")
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	watch, err := behind.client.WatchInstances(ctx, &instancev1.WatchInstancesRequest{Node: f.nodes[0]}, grpc.WaitForReady(true))
	require.NoError(t, err)
	_, err = watch.Recv()
	require.NoError(t, err)

	apiProxy.rejectIf(func(*http.Request) bool { return true })
	apiProxy.CloseClientConnections()
	require.NoError(t, reserve(other, f.nodes[0], claim(name, 0)))
	apiProxy.rejectIf(func(*http.Request) bool { return false })
	for holder := ""; holder != f.nodes[0]; {
		message, err := watch.Recv()
		require.NoError(t, err)
		if slots := message.GetUpdated().GetSlots(); len(slots) == 1 {
			holder = slots[0].GetHolder().GetNode()
		}
	}
}
