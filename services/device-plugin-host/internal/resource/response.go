// Package resource holds the two kinds of extended resource: one for an Instance and one for a Configuration. They say
// which devices the kubelet may give to pods, take the slots when it does, and tell what the containers receive.
package resource

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

// container is what one container receives for its devices: each property as KEY and as KEY_<HASH>, mounts, and device
// nodes. Where several devices have one KEY, the last in the order of Instance names decides; KEY_<HASH> is always that
// of its device.
func container(devices []node.Device) *pluginapi.ContainerAllocateResponse {
	devices = slices.SortedFunc(slices.Values(devices), func(a, b node.Device) int {
		return cmp.Compare(a.Content.GetInstance(), b.Content.GetInstance())
	})
	response := &pluginapi.ContainerAllocateResponse{Envs: map[string]string{}}
	suffixed := map[string]string{}
	for _, device := range devices {
		hash := strings.ToUpper(akriv0.InstanceDigest(device.Content.GetInstance()))
		for key, value := range device.Content.GetProperties() {
			response.Envs[key] = value
			suffixed[key+"_"+hash] = value
		}
		addMounts(response, device)
		addDeviceNodes(response, device)
	}
	maps.Copy(response.Envs, suffixed)
	return response
}

func addMounts(response *pluginapi.ContainerAllocateResponse, device node.Device) {
	for _, m := range device.Content.GetMounts() {
		mount := &pluginapi.Mount{ContainerPath: m.GetContainerPath(), HostPath: m.GetHostPath(), ReadOnly: m.GetReadOnly()}
		response.Mounts = appendNew(response.Mounts, mount)
	}
}

func addDeviceNodes(response *pluginapi.ContainerAllocateResponse, device node.Device) {
	for _, n := range device.Content.GetDeviceNodes() {
		spec := &pluginapi.DeviceSpec{
			ContainerPath: cmp.Or(n.GetContainerPath(), n.GetHostPath()),
			HostPath:      n.GetHostPath(),
			Permissions:   n.GetPermissions(),
		}
		response.Devices = appendNew(response.Devices, spec)
	}
}

// appendNew leaves out what is there already: two slots of one device bring the same.
func appendNew[M proto.Message](list []M, item M) []M {
	if slices.ContainsFunc(list, func(other M) bool { return proto.Equal(other, item) }) {
		return list
	}
	return append(list, item)
}
