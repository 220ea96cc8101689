package instancewriter_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

func TestInstancesInParts(t *testing.T) {
	const count = 24
	f := newFixture(t, 1000, 1) // the slots of eight Instances fill a part
	r := start(t, grace)
	var devices []*discoveryv1.Device
	for i := range count {
		devices = append(devices, f.device("", fmt.Sprint("foo", i), true))
	}
	require.Empty(t, openReports(t, r).send(f.newReport(f.nodes[0], devices...)))
	snapshot := func() (names map[string]bool, messages int) {
		watch, err := r.client.WatchInstances(t.Context(), &instancev1.WatchInstancesRequest{Node: f.nodes[0]})
		require.NoError(t, err)
		names = map[string]bool{}
		for more := true; more; messages++ {
			response, err := watch.Recv()
			require.NoError(t, err)
			part := response.GetSnapshot()
			require.NotNil(t, part)
			require.NotZero(t, part.GetRevision())
			require.Less(t, proto.Size(response), 65<<10, "a message of 64 KiB of Instances")
			for _, instance := range part.GetInstances() {
				names[instance.GetName()] = true
			}
			more = part.GetMore()
		}
		return names, messages
	}
	messages := 0
	f.eventually("all Instances", func() bool {
		var names map[string]bool
		names, messages = snapshot()
		return len(names) == count
	})
	require.Greater(t, messages, 2)
	require.Less(t, messages, count)
}

// A node that joins an Instance causes no message to the other nodes.
func TestOnlyConcernedNodesAreInformed(t *testing.T) {
	f := newFixture(t, 2, 2)
	r := start(t, grace)
	name := f.instanceName("foo")
	open := func(node string) func() *instancev1.Instance {
		watch, err := r.client.WatchInstances(t.Context(), &instancev1.WatchInstancesRequest{Node: node})
		require.NoError(t, err)
		snapshot, err := watch.Recv()
		require.NoError(t, err)
		require.Empty(t, snapshot.GetSnapshot().GetInstances())
		return func() *instancev1.Instance {
			response, err := watch.Recv()
			require.NoError(t, err)
			require.Equal(t, name, response.GetUpdated().GetName())
			return response.GetUpdated()
		}
	}
	first, second := open(f.nodes[0]), open(f.nodes[1])
	report := func(node string) { openReports(t, r).send(f.newReport(node, f.device("", "foo", true))) }
	report(f.nodes[0])
	created := first().GetRevision()
	report(f.nodes[1])
	require.Greater(t, second().GetRevision(), created)
	require.NoError(t, reserve(r, f.nodes[1], claim(name, 0)))
	reserved := func(instance *instancev1.Instance) string { return instance.GetSlots()[0].GetHolder().GetNode() }
	require.Equal(t, f.nodes[1], reserved(second()))
	require.Equal(t, f.nodes[1], reserved(first()), "the next message of the first node")
}

// Large properties of a shared device need no memory on the other nodes that see it: they get its
// slots only.
func TestInstancesHaveNoProperties(t *testing.T) {
	f := newFixture(t, 2, 2)
	r := start(t, grace)
	device := f.device("", "foo", true)
	device.Properties["LONG"] = strings.Repeat("x", 900<<10)
	require.Empty(t, openReports(t, r).send(f.newReport(f.nodes[0], device)))
	require.Empty(t, openReports(t, r).send(f.newReport(f.nodes[1], device)))
	f.eventually("both nodes", func() bool { return len(f.get(device.GetInstance()).Spec.Nodes) == 2 })

	watch, err := r.client.WatchInstances(t.Context(), &instancev1.WatchInstancesRequest{Node: f.nodes[1]})
	require.NoError(t, err)
	receive := func() *instancev1.WatchInstancesResponse {
		response, err := watch.Recv()
		require.NoError(t, err)
		require.Less(t, proto.Size(response), 4<<10)
		return response
	}
	// The snapshot is empty if the replica has not read the Instance yet.
	for listed := false; !listed; {
		response := receive()
		listed = len(response.GetSnapshot().GetInstances()) == 1 || response.GetUpdated().GetName() == device.GetInstance()
	}

	reserved, err := r.client.ReserveSlots(t.Context(), &instancev1.ReserveSlotsRequest{
		Node: f.nodes[1], Claims: []*instancev1.SlotClaim{claim(device.GetInstance(), 0)},
	})
	require.NoError(t, err)
	require.Less(t, proto.Size(reserved), 4<<10)
	require.Equal(t, device.GetInstance(), receive().GetUpdated().GetName())
}
