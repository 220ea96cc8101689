package plugin

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/device-plugin-host/internal/node"
)

// containerResponse returns the environment variables, mounts and device nodes of one container.
// Each property is set as KEY and as KEY_<HASH>. If several devices have the same KEY, the last in
// the order of Instance names wins. KEY_<HASH> is always that of its device.
func containerResponse(devices []node.Device) *pluginapi.ContainerAllocateResponse {
	devices = slices.SortedFunc(slices.Values(devices), func(a, b node.Device) int {
		return cmp.Compare(a.Instance.GetName(), b.Instance.GetName())
	})
	response := &pluginapi.ContainerAllocateResponse{Envs: map[string]string{}}
	suffixed := map[string]string{}
	for _, device := range devices {
		hash := strings.ToUpper(akriv0.InstanceDigest(device.Instance.GetName()))
		for key, value := range device.Spec.GetProperties() {
			response.Envs[key] = value
			suffixed[key+"_"+hash] = value
		}
		for _, m := range device.Spec.GetMounts() {
			mount := &pluginapi.Mount{ContainerPath: m.GetContainerPath(), HostPath: m.GetHostPath(), ReadOnly: m.GetReadOnly()}
			response.Mounts = appendUnique(response.Mounts, mount)
		}
		for _, n := range device.Spec.GetDeviceNodes() {
			deviceNode := &pluginapi.DeviceSpec{
				ContainerPath: cmp.Or(n.GetContainerPath(), n.GetHostPath()),
				HostPath:      n.GetHostPath(),
				Permissions:   n.GetPermissions(),
			}
			response.Devices = appendUnique(response.Devices, deviceNode)
		}
	}
	maps.Copy(response.Envs, suffixed)
	return response
}

// appendUnique appends the item unless the list contains an equal one: several devices may have the
// same mount.
func appendUnique[M proto.Message](list []M, item M) []M {
	if slices.ContainsFunc(list, func(other M) bool { return proto.Equal(other, item) }) {
		return list
	}
	return append(list, item)
}
