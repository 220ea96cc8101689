package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	k8smetadata "k8s.io/dynamic-resource-allocation/api/metadata"
	"k8s.io/dynamic-resource-allocation/devicemetadata"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// requireMetadata checks the device metadata at a path in the container as a program in it does,
// with the library of Kubernetes. values are attributes of the only device.
func requireMetadata(t *testing.T, pod *corev1.Pod, container, path string, values map[string]string) {
	t.Helper()
	node, err := akri.Cluster.Node(pod.Spec.NodeName)
	require.NoError(t, err)
	pid, err := node.ContainerPID(t.Context(), pod.Namespace, pod.Name, container)
	require.NoError(t, err)
	file, err := os.Open(fmt.Sprintf("/proc/%d/root%s", pid, path))
	require.NoError(t, err)
	defer func() { _ = file.Close() }()

	var found k8smetadata.DeviceMetadata
	require.NoError(t, devicemetadata.DecodeMetadataFromStream(json.NewDecoder(file), &found))
	require.Equal(t, pod.Namespace, found.Namespace)
	require.Len(t, found.Requests, 1)
	require.Len(t, found.Requests[0].Devices, 1)
	device := found.Requests[0].Devices[0]
	require.Equal(t, akriv0.Driver, device.Driver)
	for name, value := range values {
		require.Equal(t, value, *device.Attributes[resourcev1.QualifiedName(name)].StringValue, name)
	}
}
