package node

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	akriv0 "akri.sh/libs/apis/akri/v0"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
)

// Container is what a container with devices gets.
type Container struct {
	Env         map[string]string
	Mounts      []*discoveryv1.Mount
	DeviceNodes []*discoveryv1.DeviceNode
}

// NewContainer returns the environment variables, mounts and device nodes of one container with the
// devices. Each property is set as KEY and as KEY_<HASH>. If several devices have the same KEY, the
// last in the order of Instance names wins. KEY_<HASH> is always that of its device. Equal mounts
// and device nodes are merged. The container path of a device node is set.
func NewContainer(devices []Device) Container {
	devices = slices.SortedFunc(slices.Values(devices), func(a, b Device) int {
		return cmp.Compare(a.Instance.GetName(), b.Instance.GetName())
	})
	container := Container{Env: map[string]string{}}
	suffixed := map[string]string{}
	for _, device := range devices {
		hash := strings.ToUpper(akriv0.InstanceDigest(device.Instance.GetName()))
		for key, value := range device.Spec.GetProperties() {
			container.Env[key] = value
			suffixed[key+"_"+hash] = value
		}
		for _, mount := range device.Spec.GetMounts() {
			container.Mounts = appendUnique(container.Mounts, mount)
		}
		for _, n := range device.Spec.GetDeviceNodes() {
			container.DeviceNodes = appendUnique(container.DeviceNodes, &discoveryv1.DeviceNode{
				HostPath: n.GetHostPath(), ContainerPath: cmp.Or(n.GetContainerPath(), n.GetHostPath()), Permissions: n.GetPermissions(),
			})
		}
	}
	maps.Copy(container.Env, suffixed)
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
