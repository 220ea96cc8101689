package instancewriter_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// collision returns two device ids whose devices have one short name. The first device is on the
// first node, and the second device on the second node. A digest has 24 bits, so some thousand ids
// are enough.
func (f *fixture) collision(shared bool) (first, second *discoveryv1.Device) {
	names := map[string]string{}
	for i := 0; ; i++ {
		id := fmt.Sprintf("id-%d", i)
		second = f.device(f.nodes[1], id, shared)
		if other, ok := names[second.GetInstance()]; ok {
			return f.device(f.nodes[0], other, shared), second
		}
		names[f.device(f.nodes[0], id, shared).GetInstance()] = id
	}
}

// longName returns the name of the Instance if another device has the short name.
func (f *fixture) longName(node string, device *discoveryv1.Device) string {
	return akriv0.InstanceName(f.configuration.Name, akriv0.LongDigest(device.GetId(), node, device.GetShared()))
}

// ids returns the device ids of the fixture's Instances by name.
func (f *fixture) ids() map[string]string {
	f.Helper()
	list, err := f.instances.In(namespace).List(f.Context(), metav1.ListOptions{LabelSelector: akriv0.ConfigurationLabel + "=" + f.configuration.Name})
	require.NoError(f, err)
	ids := map[string]string{}
	for _, instance := range list.Items {
		ids[instance.Name] = instance.Annotations[akriv0.DeviceIDAnnotation]
	}
	return ids
}

// Two devices with one digest both have Instances, which keep their names.
func TestCollidingDevices(t *testing.T) {
	for title, shared := range map[string]bool{"shared": true, "local": false} {
		t.Run(title, func(t *testing.T) {
			f := newFixture(t, 1, 2)
			first, second := f.collision(shared)
			short, long := first.GetInstance(), f.longName(f.nodes[1], second)
			both := map[string]string{short: first.GetId(), long: second.GetId()}
			replicas := []*replica{start(t, grace), start(t, grace)}
			report := func() []*stream {
				streams := []*stream{openReports(t, replicas[0]), openReports(t, replicas[1])}
				require.Empty(t, streams[0].send(f.newReport(f.nodes[0], first)))
				require.Empty(t, streams[1].send(f.newReport(f.nodes[1], second)))
				require.Equal(t, both, f.ids())
				return streams
			}
			report()
			require.Equal(t, akriv0.CDIName(f.configuration.Name, akriv0.InstanceDigest(long)), f.get(long).Spec.CDIName)
			require.Equal(t, second.GetProperties(), f.get(long).Spec.BrokerProperties)
			require.NoError(t, reserve(replicas[0], f.nodes[1], claim(long, 0)))
			require.Equal(t, map[string]string{long + "-0": f.nodes[1]}, f.get(long).Spec.DeviceUsage)
			f.eventually("status", func() bool { return f.status().Devices == 2 && len(f.status().Nodes) == 2 })

			before := []*akriv0.Instance{f.get(short), f.get(long)}
			replicas[0].kill()
			replicas[1].kill()
			replicas = []*replica{start(t, grace), start(t, grace)}
			streams := report()
			require.Equal(t, before, []*akriv0.Instance{f.get(short), f.get(long)}, "a restart changes nothing")

			require.Empty(t, streams[0].send(f.newReport(f.nodes[0])))
			require.Equal(t, map[string]string{long: second.GetId()}, f.ids(), "the second device keeps its name")
			require.Empty(t, streams[0].send(f.newReport(f.nodes[0], first)))
			f.eventually("the first device has the short name", func() bool { return maps.Equal(both, f.ids()) })
			require.Empty(t, streams[1].send(f.newReport(f.nodes[1])))
			require.Equal(t, map[string]string{short: first.GetId()}, f.ids())
		})
	}
}

// A node gets the ids of its devices, because two of them can have one short name.
func TestCollidingDevicesOfOneNode(t *testing.T) {
	f := newFixture(t, 1, 2)
	r := start(t, grace)
	first, second := f.collision(true)
	require.Empty(t, openReports(t, r).send(f.newReport(f.nodes[0], second, first)))
	watch, err := r.client.WatchInstances(t.Context(), &instancev1.WatchInstancesRequest{Node: f.nodes[0]})
	require.NoError(t, err)
	ids := map[string]string{}
	for len(ids) < 2 {
		event, err := watch.Recv()
		require.NoError(t, err)
		for _, instance := range append(event.GetSnapshot().GetInstances(), event.GetUpdated()) {
			if instance != nil {
				ids[instance.GetName()] = instance.GetDeviceId()
			}
		}
	}
	one, two := min(first.GetId(), second.GetId()), max(first.GetId(), second.GetId())
	require.Equal(t, map[string]string{f.instanceName(one): one, f.longName("", f.device("", two, true)): two}, ids)

	require.NoError(t, f.configurations.In(namespace).Delete(t.Context(), f.configuration.Name, metav1.DeleteOptions{}))
	f.eventually("Instances are deleted", func() bool { return len(f.ids()) == 0 })
}
