package instancewriter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/kubetest"
	instancev1 "akri.sh/proto/akri/instance/v1"
	instancewriter "akri.sh/services/instance-writer"
)

const (
	unspecified  = instancev1.Resources_RESOURCES_UNSPECIFIED
	devicePlugin = instancev1.Resources_RESOURCES_DEVICE_PLUGIN
	dra          = instancev1.Resources_RESOURCES_DRA
)

// decided is a replica in a cluster that decides how Pods get devices.
type decided struct {
	*fixture
	*replica
	configMaps corev1client.ConfigMapInterface
}

// startDecided starts a replica whose record is in a namespace of its own, without data.
func startDecided(t *testing.T, nodes int) decided {
	f := newFixture(t, 1, nodes)
	core := kubernetes.NewForConfigOrDie(api.Config()).CoreV1()
	in := "record-of-" + f.configuration.Name
	_, err := core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: in}}, metav1.CreateOptions{})
	require.NoError(t, err)
	d := decided{fixture: f, configMaps: core.ConfigMaps(in)}
	_, err = d.configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: akriv0.ResourcesConfigMap}}, metav1.CreateOptions{})
	require.NoError(t, err)
	d.replica = startWith(t, instancewriter.Config{
		Flags: kube.Flags{REST: api.Config()}, NodeGrace: grace, Namespace: in, Resources: "auto",
	}, zap.NewNop())
	return d
}

func (d decided) record(resources string) {
	d.Helper()
	kubetest.Edit(d, d.configMaps, akriv0.ResourcesConfigMap, func(configMap *corev1.ConfigMap) {
		configMap.Data = map[string]string{akriv0.ResourcesKey: resources}
	})
}

func (d decided) label(node, value string) {
	d.Helper()
	kubetest.Edit(d, d.nodeClient.In(""), node, func(current *corev1.Node) {
		current.Labels = map[string]string{akriv0.ResourcesLabel: value}
	})
}

// info sets the versions of the kubelet and of the runtime.
func (d decided) info(node, kubelet, runtime string) {
	d.Helper()
	kubetest.EditStatus(d, d.nodeClient.In(""), node, func(current *corev1.Node) {
		current.Status.NodeInfo.KubeletVersion, current.Status.NodeInfo.ContainerRuntimeVersion = kubelet, runtime
	})
}

// watch opens a stream of the node. The function returns the next message.
func (d decided) watch(node string) func() *instancev1.WatchInstancesResponse {
	d.Helper()
	ctx, cancel := context.WithTimeout(d.Context(), timeout)
	d.Cleanup(cancel)
	stream, err := d.client.WatchInstances(ctx, &instancev1.WatchInstancesRequest{Node: node})
	require.NoError(d, err)
	return func() *instancev1.WatchInstancesResponse {
		d.Helper()
		response, err := stream.Recv()
		require.NoError(d, err)
		return response
	}
}

// requireResources checks that the message is that of the resources.
func requireResources(t *testing.T, want instancev1.Resources, message *instancev1.WatchInstancesResponse) {
	t.Helper()
	require.IsType(t, &instancev1.WatchInstancesResponse_Resources{}, message.GetEvent())
	require.Equal(t, want, message.GetResources())
}

// A node learns how its Pods get devices before its Instances, and each change of the record, its
// label and its kubelet. Without a record no Instance is created.
func TestResources(t *testing.T) {
	d := startDecided(t, 2)
	node, other := d.nodes[0], d.nodes[1]
	next, nextOfOther := d.watch(node), d.watch(other)
	requireResources(t, unspecified, next())
	require.Empty(t, next().GetSnapshot().GetInstances())
	requireResources(t, unspecified, nextOfOther())
	require.Empty(t, nextOfOther().GetSnapshot().GetInstances())

	device := d.device(node, "foo", false)
	require.Empty(t, openReports(t, d.replica).send(d.newReport(node, device)))
	require.True(t, d.deleted(device.GetInstance()), "no Instance is created without a record")
	accepted := func() *metav1.Condition {
		return meta.FindStatusCondition(d.status().Conditions, akriv0.ConditionDevicesAccepted)
	}
	d.eventually("Undecided", func() bool { return accepted() != nil && accepted().Reason == akriv0.ReasonUndecided })
	require.Equal(t, metav1.ConditionUnknown, accepted().Status)

	d.record(akriv0.ResourcesDRA)
	requireResources(t, dra, next())
	require.Equal(t, device.GetInstance(), next().GetUpdated().GetName())
	requireResources(t, dra, nextOfOther())
	d.eventually("AsExpected", func() bool { return accepted().Reason == akriv0.ReasonAsExpected })

	for _, change := range []struct {
		change func()
		want   instancev1.Resources
	}{
		{func() { d.info(node, "v1.35.4", "") }, devicePlugin},
		{func() { d.label(node, akriv0.ResourcesDRA) }, dra},
		{func() { d.label(node, akriv0.ResourcesDevicePlugin) }, devicePlugin},
		{func() { d.info(node, "v1.37.2", ""); d.label(node, "") }, dra},
		{func() { d.info(node, "v1.37.2", "docker://29.4.0") }, devicePlugin},
		{func() { d.info(node, "v1.37.2", "containerd://2.4.2") }, dra},
		{func() { d.record(akriv0.ResourcesDevicePlugin) }, devicePlugin},
	} {
		change.change()
		requireResources(t, change.want, next())
	}
	requireResources(t, devicePlugin, nextOfOther())

	// The decision stays if the record is deleted.
	require.NoError(t, d.configMaps.Delete(t.Context(), akriv0.ResourcesConfigMap, metav1.DeleteOptions{}))
	d.label(other, akriv0.ResourcesDRA)
	requireResources(t, dra, nextOfOther())
	d.label(node, akriv0.ResourcesDRA)
	requireResources(t, dra, next())
}

// A node whose Node is not known yet offers nothing. That of a Node which is deleted stays.
func TestResourcesOfUnknownNode(t *testing.T) {
	d := startDecided(t, 1)
	d.record(akriv0.ResourcesDRA)
	known := d.watch(d.nodes[0])
	for known().GetResources() != dra { // a replica reads the record later than the API server has it
	}
	name := d.nodes[0] + "-later"
	next := d.watch(name)
	requireResources(t, unspecified, next())
	require.NotNil(t, next().GetSnapshot())
	d.addNode(name)
	requireResources(t, dra, next())
	require.NoError(t, d.nodeClient.In("").Delete(t.Context(), name, metav1.DeleteOptions{}))
	d.addNode(name)
	d.label(name, akriv0.ResourcesDevicePlugin)
	requireResources(t, devicePlugin, next())
}

// After any changes the last message states what the label, the kubelet, the runtime and the record
// require, and no message repeats the one before.
func TestResourcesFollowRandomChanges(t *testing.T) {
	d := startDecided(t, 1)
	node := d.nodes[0]
	next := d.watch(node)
	last := next()
	requireResources(t, unspecified, last)
	require.NotNil(t, next().GetSnapshot())

	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	pick := func(values ...string) string { return values[random.IntN(len(values))] }
	current, recorded := &corev1.Node{}, ""
	for range 20 {
		for range random.IntN(4) {
			switch random.IntN(3) {
			case 0:
				current.Labels = map[string]string{akriv0.ResourcesLabel: pick("", akriv0.ResourcesDRA, akriv0.ResourcesDevicePlugin, "other")}
				d.label(node, current.Labels[akriv0.ResourcesLabel])
			case 1:
				current.Status.NodeInfo.KubeletVersion = pick("v1.30.14", "v1.35.4", "v1.36.0", "v1.37.2")
				current.Status.NodeInfo.ContainerRuntimeVersion = pick("", "containerd://1.7.30", "containerd://2.4.2", "docker://29.4.0")
				d.info(node, current.Status.NodeInfo.KubeletVersion, current.Status.NodeInfo.ContainerRuntimeVersion)
			default:
				recorded = pick(akriv0.ResourcesDRA, akriv0.ResourcesDevicePlugin)
				d.record(recorded)
			}
		}
		want := map[string]instancev1.Resources{"": unspecified, akriv0.ResourcesDRA: dra, akriv0.ResourcesDevicePlugin: devicePlugin}[akriv0.ResourcesOf(current, recorded)]
		for last.GetResources() != want {
			message := next()
			require.NotEqual(t, last.GetResources(), message.GetResources(), fmt.Sprint(message))
			last = message
		}
	}
}
