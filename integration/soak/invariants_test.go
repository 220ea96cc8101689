package soak

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/mesh"
)

// camera returns an Instance with two slots that node-a and node-b see.
func camera(first, second string) *akriv0.Instance {
	return &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Name: "cameras-123456", UID: "1", Annotations: map[string]string{akriv0.DeviceIDAnnotation: "camera"}},
		Spec: akriv0.InstanceSpec{
			ConfigurationName: "cameras", Capacity: 2, Nodes: []string{"node-a", "node-b"},
			DeviceUsage: map[string]string{"cameras-123456-0": first, "cameras-123456-1": second},
		},
	}
}

// using returns one container that uses the camera for each node.
func using(nodes ...string) map[string]user {
	running := map[string]user{}
	for i, node := range nodes {
		running[string(rune('a'+i))] = user{node: node, instances: []string{"cameras-123456"}}
	}
	return running
}

func TestInstancesInEnvironment(t *testing.T) {
	environment := []byte("PATH=/bin\x00SOAK_CONFIGURATION=cameras\x00SOAK_CONFIGURATION_123456=cameras\x00SOAK_VERSION_123456=1\x00")
	require.Equal(t, []string{"cameras-123456"}, instancesIn(environment))
	require.Empty(t, instancesIn(nil))
}

func TestCheckSlots(t *testing.T) {
	for name, c := range map[string]struct {
		instance *akriv0.Instance
		running  map[string]user
		message  string
	}{
		"no container":                 {camera("node-a", ""), nil, ""},
		"each container has a slot":    {camera("node-a", "C:0:node-b"), using("node-a", "node-b"), ""},
		"two containers of one node":   {camera("node-a", "C:0:node-a"), using("node-a", "node-a"), ""},
		"slot of another node":         {camera("node-b", ""), using("node-a"), "1 containers on node-a use cameras-123456, and the node holds 0 slots"},
		"two containers with one slot": {camera("node-a", ""), using("node-a", "node-a"), "2 containers on node-a"},
		"malformed slot":               {camera("C:0", ""), nil, "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkSlots(c.instance, c.running, 2)
			if c.message == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.message)
		})
	}
	err := checkSlots(camera("node-a", "node-b"), using("node-a", "node-b"), 1)
	require.ErrorContains(t, err, "2 containers use cameras-123456, whose capacity is at most 1")
	left := camera("", "node-b")
	left.Spec.Nodes = []string{"node-b"}
	require.NoError(t, checkSlots(left, using("node-a", "node-b"), 2), "a node that lost the device")
}

func TestCheckChange(t *testing.T) {
	other := camera("", "")
	other.Annotations = map[string]string{akriv0.DeviceIDAnnotation: "other"}
	above := camera("", "")
	above.Spec.DeviceUsage["cameras-123456-2"] = "node-a"
	require.NoError(t, checkChange(nil, camera("", "")))
	require.NoError(t, checkChange(camera("", ""), camera("node-a", "")))
	require.ErrorContains(t, checkChange(camera("", ""), other), `of device "camera" became that of "other"`)
	require.ErrorContains(t, checkChange(camera("", ""), above), "slot cameras-123456-2 was reserved")
	require.NoError(t, checkChange(above, above), "a slot above a lowered capacity stays in use")
}

func TestReleased(t *testing.T) {
	require.False(t, released(nil, camera("", "")))
	require.False(t, released(camera("node-a", ""), camera("node-a", "node-b")))
	require.True(t, released(camera("node-a", ""), camera("", "")))
	require.True(t, released(camera("node-a", ""), camera("node-b", "")))
}

func TestCheckInstance(t *testing.T) {
	want := func() expected {
		return expected{device: "camera", nodes: []string{"node-a", "node-b"}, capacity: 2, properties: map[string]string{versionProperty: "1"}}
	}
	stored := camera("", "")
	stored.Spec.BrokerProperties = map[string]string{versionProperty: "1", "OTHER": "x"}
	require.NoError(t, checkInstance(stored, want()))
	for message, change := range map[string]func(*expected){
		`is of device "camera"`: func(e *expected) { e.device = "other" },
		"has nodes":             func(e *expected) { e.nodes = e.nodes[:1] },
		"has capacity 2":        func(e *expected) { e.capacity = 3 },
		`has SOAK_VERSION="1"`:  func(e *expected) { e.properties[versionProperty] = "2" },
	} {
		changed := want()
		change(&changed)
		require.ErrorContains(t, checkInstance(stored, changed), message)
	}
}

func broker(node string, phase corev1.PodPhase) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{mesh.InstanceLabel: "cameras-123456", "akri.sh/target-node": node}},
		Status:     corev1.PodStatus{Phase: phase},
	}
}

func TestCheckBrokers(t *testing.T) {
	a, b := broker("node-a", corev1.PodRunning), broker("node-b", corev1.PodPending)
	failed := broker("node-a", corev1.PodFailed)
	require.NoError(t, checkBrokers([]*corev1.Pod{a, b, failed}, "cameras-123456", 2))
	require.NoError(t, checkBrokers([]*corev1.Pod{a, a}, "other", 1))
	require.ErrorContains(t, checkBrokers([]*corev1.Pod{a, a}, "cameras-123456", 2), "two brokers on node-a")
	require.ErrorContains(t, checkBrokers([]*corev1.Pod{a, b}, "cameras-123456", 1), "2 brokers, and the capacity is at most 1")
}

func TestCheckRestarts(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "registrar-1", UID: "1"}, Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{
		Name: "registrar", RestartCount: 1,
		LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error"}},
	}}}}
	require.NoError(t, checkRestarts(pod, func(string, string) int { return 1 }))
	require.ErrorContains(t, checkRestarts(pod, func(string, string) int { return 0 }), "registrar-1/registrar restarted 1 times, expected at most 0 (last: Error, exit code 2")
	pod.Status.ContainerStatuses[0].LastTerminationState.Terminated.Reason = startError
	require.NoError(t, checkRestarts(pod, func(string, string) int { return 0 }))
}

func TestCheckAllocatable(t *testing.T) {
	node := func(instance, configuration string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{
			"akri.sh/cameras-123456": resource.MustParse(instance), "akri.sh/cameras": resource.MustParse(configuration),
			"akri.sh/former": resource.MustParse("0"), "cpu": resource.MustParse("2"),
		}}}
	}
	for name, c := range map[string]struct{ first, second, instance, configuration string }{
		"two free slots":                          {"", "", "2", "1"},
		"own slot":                                {"node-a", "", "2", "1"},
		"own slot, through the Configuration":     {"C:0:node-a", "", "1", "2"},
		"slot of another node":                    {"node-b", "", "1", "1"},
		"no free slot":                            {"node-b", "C:0:node-b", "0", "0"},
		"no free slot, one through Configuration": {"node-b", "C:0:node-a", "0", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			instances := []*akriv0.Instance{camera(c.first, c.second)}
			require.NoError(t, checkAllocatable(node(c.instance, c.configuration), instances))
			require.ErrorContains(t, checkAllocatable(node("7", c.configuration), instances), "7 akri.sh/cameras-123456 are allocatable on node-a")
		})
	}
	require.ErrorContains(t, checkAllocatable(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}, []*akriv0.Instance{camera("", "")}), "0 akri.sh/cameras")
	require.ErrorContains(t, checkAllocatable(node("2", "1"), nil), "expected 0")
}

func TestUnexpectedLogs(t *testing.T) {
	for line, want := range map[string]string{
		`2026-11-22T14:00:00Z stderr F {"level":"info","message":"starting"}`:                         "",
		`2026-11-22T14:00:00Z stderr F {"level":"error","message":"watch","logger":"UnhandledError"}`: "",
		`2026-11-22T14:00:00Z stderr F {"level":"error","message":"slot is lost"}`:                    `{"level":"error","message":"slot is lost"}`,
		"2026-11-22T14:00:00Z stderr F panic: runtime error: invalid memory address":                  "panic: runtime error: invalid memory address",
		"2026-11-22T14:00:00Z stderr F fatal error: concurrent map writes":                            "fatal error: concurrent map writes",
		"2026-11-22T14:00:00Z stderr F a line of text":                                                "",
		"incomplete": "",
	} {
		require.Equal(t, want, unexpected(line))
	}
}
