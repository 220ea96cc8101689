package plugin

import (
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"akri.sh/libs/node"
)

// containerResponse returns what one container with the devices gets.
func containerResponse(devices []node.Device) *pluginapi.ContainerAllocateResponse {
	container := node.NewContainer(devices)
	response := &pluginapi.ContainerAllocateResponse{Envs: container.Env}
	for _, m := range container.Mounts {
		response.Mounts = append(response.Mounts, &pluginapi.Mount{
			ContainerPath: m.GetContainerPath(), HostPath: m.GetHostPath(), ReadOnly: m.GetReadOnly(),
		})
	}
	for _, n := range container.DeviceNodes {
		response.Devices = append(response.Devices, &pluginapi.DeviceSpec{
			ContainerPath: n.GetContainerPath(), HostPath: n.GetHostPath(), Permissions: n.GetPermissions(),
		})
	}
	return response
}
