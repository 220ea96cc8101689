package node

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// ForContainer returns the environment variables, mounts and device nodes of one container with the
// devices, in the form of the device plugin API. Each property is set as KEY and as KEY_<HASH>. If
// several devices have the same KEY, the last in the order of Instance names wins. KEY_<HASH> is
// always that of its device. Equal mounts and device nodes are merged. The container path of a
// device node is set.
func ForContainer(devices []Device) *pluginapi.ContainerAllocateResponse {
	devices = slices.SortedFunc(slices.Values(devices), func(a, b Device) int {
		return cmp.Compare(a.Instance.GetName(), b.Instance.GetName())
	})
	container := &pluginapi.ContainerAllocateResponse{Envs: map[string]string{}}
	suffixed := map[string]string{}
	for _, device := range devices {
		hash := strings.ToUpper(akriv0.InstanceDigest(device.Instance.GetName()))
		for key, value := range device.Spec.GetProperties() {
			container.Envs[key] = value
			suffixed[key+"_"+hash] = value
		}
		for _, m := range device.Spec.GetMounts() {
			container.Mounts = appendUnique(container.Mounts, &pluginapi.Mount{
				ContainerPath: m.GetContainerPath(), HostPath: m.GetHostPath(), ReadOnly: m.GetReadOnly(),
			})
		}
		for _, n := range device.Spec.GetDeviceNodes() {
			container.Devices = appendUnique(container.Devices, &pluginapi.DeviceSpec{
				ContainerPath: cmp.Or(n.GetContainerPath(), n.GetHostPath()), HostPath: n.GetHostPath(), Permissions: n.GetPermissions(),
			})
		}
	}
	maps.Copy(container.Envs, suffixed)
	return container
}

// appendUnique appends the item unless the list contains an equal one: several devices may have the
// same mount.
func appendUnique[M proto.Message](list []M, item M) []M {
	if slices.ContainsFunc(list, func(other M) bool { return proto.Equal(other, item) }) {
		return list
	}
	return append(list, item)
}
