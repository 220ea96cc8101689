package status_test

import (
	"flag"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/fixture"
	"akri.sh/libs/inspect/status"
)

var update = flag.Bool("update", false, "write the golden files")

const healthy = "../explain/testdata/healthy.yaml"

func TestOverview(t *testing.T) {
	for _, name := range []string{"healthy", "tainted-node", "version-skew", "service-not-ready", "misspelt-handler"} {
		files := []string{healthy}
		if name != "healthy" {
			files = append(files, "../explain/testdata/"+name+".yaml")
		}
		text, err := yaml.Marshal(status.Of(fixture.Load(t, files...)))
		require.NoError(t, err)
		fixture.Golden(t, "testdata/"+name+".golden", string(text), *update)
	}
}

func TestNotInstalled(t *testing.T) {
	s := fixture.Load(t, healthy)
	s.DaemonSets, s.Deployments, s.Pods = nil, nil, nil
	for _, node := range status.Of(s).Nodes {
		require.False(t, node.Akri, node.Name)
	}
}

func TestHandlersOfAllConfigurations(t *testing.T) {
	s := fixture.Load(t, healthy)
	other := *s.Configurations[0].DeepCopy()
	other.Name = "another"
	s.Configurations = append(s.Configurations, other)
	handlers := status.Handlers(s)
	require.Len(t, handlers, 2)
	for i, node := range []string{"node-a", "node-b"} {
		require.Equal(t, status.Handler{
			Node: node, Name: "onvif", Endpoint: "/var/lib/akri/onvif.sock", Status: akriv0.HandlerActive,
			Configurations: []string{"default/another", "default/camera"},
			Verdict:        explain.Handlers(s)[0],
		}, handlers[i])
	}
}

// A handler that no node has is in the list, with the verdict on it.
func TestHandlerOnNoNode(t *testing.T) {
	s := fixture.Load(t, healthy, "../explain/testdata/misspelt-handler.yaml")
	handlers := status.Handlers(s)
	require.Len(t, handlers, 1)
	require.Equal(t, explain.Broken, handlers[0].Verdict.State)
	handlers[0].Verdict = explain.Verdict{}
	require.Equal(t, status.Handler{Name: "udve", Configurations: []string{"default/camera"}}, handlers[0])
}

func TestSlotsHaveTheirPods(t *testing.T) {
	s := fixture.Load(t, healthy)
	require.Empty(t, status.Slots(s, "other"))
	require.Equal(t, []explain.Slot{
		{
			Namespace: "default", Configuration: "camera", Instance: "camera-8120fe", Slot: "camera-8120fe-0", Node: "node-a",
			Resource: "akri.sh/camera-8120fe", Pods: []string{"default/node-a-camera-8120fe-pod"},
		},
		{
			Namespace: "default", Configuration: "camera", Instance: "camera-8120fe", Slot: "camera-8120fe-1", Node: "node-b",
			Resource: "akri.sh/camera-8120fe", Pods: []string{"default/node-b-camera-8120fe-pod"},
		},
	}, status.Slots(s, ""))
}

// BenchmarkOverview summarizes 1,000 devices on 100 nodes with a broker each.
func BenchmarkOverview(b *testing.B) {
	s := &explain.Snapshot{}
	configuration := akriv0.Configuration{}
	configuration.Namespace, configuration.Name = "default", "camera"
	s.Configurations = append(s.Configurations, configuration)
	for i := range 1000 {
		instance := akriv0.Instance{Spec: akriv0.InstanceSpec{ConfigurationName: "camera", Capacity: 5, DeviceUsage: map[string]string{}}}
		instance.Namespace, instance.Name = "default", fmt.Sprintf("camera-%06x", i)
		node := fmt.Sprintf("node-%d", i%100)
		instance.Spec.Nodes = []string{node}
		instance.Spec.DeviceUsage[akriv0.SlotName(instance.Name, 0)] = node
		s.Instances = append(s.Instances, instance)
		pod := corev1.Pod{Spec: corev1.PodSpec{NodeName: node}}
		pod.Namespace, pod.Name, pod.Labels = "default", instance.Name+"-pod", map[string]string{akriv0.ConfigurationLabel: "camera", "controller": akriv0.Group}
		s.Pods = append(s.Pods, pod)
		if i < 100 {
			s.Nodes = append(s.Nodes, corev1.Node{})
			s.Nodes[i].Name = node
		}
	}
	for b.Loop() {
		status.Of(s)
	}
}
