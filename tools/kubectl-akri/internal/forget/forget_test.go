package forget_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/cluster"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/fixture"
	"akri.sh/libs/kube/kubetest"
	"akri.sh/tools/kubectl-akri/internal/forget"
)

var server *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &server) }

func instance(name string, nodes []string, usage map[string]string) *akriv0.Instance {
	return &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default", Annotations: map[string]string{akriv0.DeviceIDAnnotation: "id of " + name}},
		Spec:       akriv0.InstanceSpec{ConfigurationName: "camera", CDIName: "akri.sh/camera=1", Capacity: 2, Nodes: nodes, DeviceUsage: usage},
	}
}

func TestApply(t *testing.T) {
	client, err := cluster.New(server.Config())
	require.NoError(t, err)
	instances := client.Instances.In("default")
	for _, i := range []*akriv0.Instance{
		instance("local", []string{"gone"}, map[string]string{"local-0": "gone"}),
		instance("shared", []string{"gone", "stays"}, map[string]string{"shared-0": "C:0:gone", "shared-1": "stays"}),
		instance("slot", []string{"stays"}, map[string]string{"slot-0": "gone", "slot-1": "malformed:gone"}),
		instance("other", []string{"stays"}, map[string]string{"other-0": "stays"}),
	} {
		_, err := instances.Create(t.Context(), i, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() { // for the next run of a repeated test
			err := instances.Delete(context.WithoutCancel(t.Context()), i.Name, metav1.DeleteOptions{})
			require.True(t, err == nil || apierrors.IsNotFound(err), "%v", err)
		})
	}
	snapshot, err := client.Snapshot(t.Context(), "default")
	require.NoError(t, err)
	plan := forget.Of(snapshot, "gone")
	require.Equal(t, forget.Plan{Node: "gone", Changes: []forget.Change{
		{Namespace: "default", Instance: "local", DeviceID: "id of local", Delete: true, Slots: []string{"local-0"}},
		{Namespace: "default", Instance: "shared", DeviceID: "id of shared", Slots: []string{"shared-0"}},
		{Namespace: "default", Instance: "slot", DeviceID: "id of slot", Slots: []string{"slot-0"}},
	}}, plan)

	// The device is seen by another node after the list.
	local, err := instances.Get(t.Context(), "local", metav1.GetOptions{})
	require.NoError(t, err)
	local.Spec.Nodes = []string{"gone", "new"}
	_, err = instances.Update(t.Context(), local, metav1.UpdateOptions{})
	require.NoError(t, err)

	require.NoError(t, forget.Apply(t.Context(), client, plan))
	require.NoError(t, forget.Apply(t.Context(), client, plan), "repeated")
	for name, want := range map[string]akriv0.InstanceSpec{
		"local":  {Nodes: []string{"new"}, DeviceUsage: map[string]string{"local-0": ""}},
		"shared": {Nodes: []string{"stays"}, DeviceUsage: map[string]string{"shared-0": "", "shared-1": "stays"}},
		"slot":   {Nodes: []string{"stays"}, DeviceUsage: map[string]string{"slot-0": "", "slot-1": "malformed:gone"}},
		"other":  {Nodes: []string{"stays"}, DeviceUsage: map[string]string{"other-0": "stays"}},
	} {
		got, err := instances.Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, want.Nodes, got.Spec.Nodes, name)
		require.Equal(t, want.DeviceUsage, got.Spec.DeviceUsage, name)
	}

	snapshot, err = client.Snapshot(t.Context(), "default")
	require.NoError(t, err)
	require.Empty(t, forget.Of(snapshot, "gone").Changes)
	require.NoError(t, forget.Apply(t.Context(), client, forget.Of(snapshot, "new")))
	_, err = instances.Get(t.Context(), "local", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

func TestObstacles(t *testing.T) {
	healthy := fixture.Load(t, "../../../../libs/inspect/explain/testdata/healthy.yaml")
	require.Equal(t, []string{
		"Akri still runs on node-b (device-plugin-host, discovery-operator): keep its DaemonSets off the node first, with a taint or global.nodePlane.nodeSelector",
		"Pods on node-b use devices: default/node-b-camera-8120fe-pod",
	}, forget.Of(healthy, "node-b").Obstacles)
	for i := range healthy.Pods {
		if labels := healthy.Pods[i].Labels; labels[explain.ComponentLabel] == "device-plugin-host" {
			labels[explain.ComponentLabel] = "dra-kubelet-plugin"
		}
	}
	require.Contains(t, forget.Of(healthy, "node-b").Obstacles[0], "(discovery-operator, dra-kubelet-plugin)")
	for i := range healthy.Pods {
		healthy.Pods[i].Status.Phase = corev1.PodFailed
	}
	require.Empty(t, forget.Of(healthy, "node-b").Obstacles)
	require.Equal(t, []string{"you may not list the Pods of all namespaces, so it is not known whether Akri runs on node-b"},
		forget.Of(&explain.Snapshot{Unreadable: []string{"pods"}}, "node-b").Obstacles)
}
