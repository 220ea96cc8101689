package v0_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// FuzzInstanceOfDevice reads any names as those of a pool and a device of a ResourceClaim, which
// are those of others, too. A pool of Akri has the Instance, and another one none.
func FuzzInstanceOfDevice(f *testing.F) {
	for _, pool := range []string{
		"", "/", "//", "ns/cam-8120fe", "ns/node/node-a", "ns/configuration/cam", "ns/other/cam", "ns/node/node-a/x", "gpu", "/configuration/",
	} {
		f.Add(pool, "cam-8120fe", "ns", "cam", "node-a")
		f.Add(pool, "cam-8120fe-0", "", "", "")
	}
	f.Fuzz(func(t *testing.T, pool, device, namespace, configuration, node string) {
		of, instance := akriv0.InstanceOfDevice(pool, device)
		require.NotContains(t, of, "/")
		if of != "" {
			require.True(t, strings.HasPrefix(pool, of+"/"))
			require.Contains(t, []string{device, strings.TrimPrefix(pool, of+"/")}, instance)
		}

		if namespace == "" || strings.Contains(namespace+configuration+node+device, "/") {
			return // Kubernetes has no such names
		}
		for _, pool := range []string{akriv0.DevicePool(namespace, configuration, node, device), akriv0.InstancePool(namespace, device)} {
			of, instance := akriv0.InstanceOfDevice(pool, device)
			require.Equal(t, namespace+"/"+device, of+"/"+instance)
		}
	})
}

// TestResourcesOf: the label of a node decides before its kubelet and its runtime, and these before
// the record.
func TestResourcesOf(t *testing.T) {
	const devicePlugin, dra = akriv0.ResourcesDevicePlugin, akriv0.ResourcesDRA
	for _, test := range []struct{ label, kubelet, runtime, recorded, want string }{
		{kubelet: "v1.37.2", recorded: dra, want: dra},
		{kubelet: "v1.36.0-rc.1+k3s1", recorded: dra, want: dra},
		{kubelet: "v1.35.9-eks-1234", recorded: dra, want: devicePlugin},
		{kubelet: "1.9", recorded: dra, want: devicePlugin},
		{kubelet: "unknown", recorded: dra, want: dra},
		{kubelet: "v1.37.2", recorded: devicePlugin, want: devicePlugin},
		{kubelet: "v1.37.2", want: ""},
		{kubelet: "v1.35.0", want: ""},
		{label: devicePlugin, kubelet: "v1.37.2", recorded: dra, want: devicePlugin},
		{label: devicePlugin, kubelet: "v1.37.2", want: devicePlugin},
		{label: dra, kubelet: "v1.37.2", recorded: devicePlugin, want: dra},
		{label: dra, kubelet: "v1.35.0", recorded: devicePlugin, want: dra},
		{label: "other", kubelet: "v1.37.2", recorded: dra, want: dra},
		{kubelet: "v1.37.2", runtime: "containerd://2.0.0", recorded: dra, want: dra},
		{kubelet: "v1.37.2", runtime: "containerd://v2.4.2+unknown", recorded: dra, want: dra},
		{kubelet: "v1.37.2", runtime: "containerd://1.7.30-k3s1", recorded: dra, want: devicePlugin},
		{kubelet: "v1.35.0", runtime: "containerd://2.0.0", recorded: dra, want: devicePlugin},
		{kubelet: "v1.37.2", runtime: "containerd://unknown", recorded: dra, want: dra},
		{kubelet: "v1.37.2", runtime: "docker://29.4.0", recorded: dra, want: devicePlugin},
		{kubelet: "v1.37.2", runtime: "cri-o://1.36.1", recorded: dra, want: dra},
		{kubelet: "v1.37.2", runtime: "containerd://1.7.30", want: ""},
		{label: dra, kubelet: "v1.37.2", runtime: "docker://29.4.0", recorded: devicePlugin, want: dra},
	} {
		t.Run(fmt.Sprintf("%+v", test), func(t *testing.T) {
			node := &corev1.Node{}
			node.Labels = map[string]string{akriv0.ResourcesLabel: test.label}
			node.Status.NodeInfo.KubeletVersion, node.Status.NodeInfo.ContainerRuntimeVersion = test.kubelet, test.runtime
			require.Equal(t, test.want, akriv0.ResourcesOf(node, test.recorded))
		})
	}
}

func TestResourceOfClass(t *testing.T) {
	require.Equal(t, "line.a", akriv0.ResourceOfClass(akriv0.DeviceClassName("line.a")))
	require.Empty(t, akriv0.ResourceOfClass("gpu.example.com"))
}
