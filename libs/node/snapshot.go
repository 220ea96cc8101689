package node

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// Snapshot is the state of the node at one moment. It is immutable.
type Snapshot struct {
	// Node is the name of this node.
	Node string
	// Devices are the devices that this node sees and whose Instance lists it, by the name of the
	// Instance. Extended resources have no namespace, so of two Instances with one name only that
	// in the first namespace is here.
	Devices map[string]Device
	// Configurations are the Configurations of these devices, by name.
	Configurations map[string]types.NamespacedName
	// Resources is how Pods on this node get devices, if the cluster decides it. It is unspecified
	// until instance-writer has sent it.
	Resources instancev1.Resources

	instances []*instancev1.Instance // ordered by namespace and name
	byName    map[types.NamespacedName]*instancev1.Instance
}

// Device is a device that this node sees, and its Instance.
type Device struct {
	Instance *instancev1.Instance
	// Spec has the properties, mounts and device nodes for containers.
	Spec *discoveryv1.Device
}

func newSnapshot(
	node string, instances map[types.NamespacedName]*instancev1.Instance, seen map[types.NamespacedName]devices,
) *Snapshot {
	s := &Snapshot{
		Node: node, Devices: map[string]Device{}, Configurations: map[string]types.NamespacedName{}, byName: maps.Clone(instances),
	}
	s.instances = slices.SortedFunc(maps.Values(instances), func(a, b *instancev1.Instance) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	for _, instance := range s.instances {
		configuration := configurationOf(instance)
		spec := seen[configuration].of(instance)
		if _, exists := s.Devices[instance.GetName()]; spec == nil || exists {
			continue
		}
		s.Devices[instance.GetName()] = Device{Instance: instance, Spec: spec}
		if _, exists := s.Configurations[configuration.Name]; !exists {
			s.Configurations[configuration.Name] = configuration
		}
	}
	return s
}

func configurationOf(instance *instancev1.Instance) types.NamespacedName {
	return types.NamespacedName{Namespace: instance.GetNamespace(), Name: instance.GetConfiguration()}
}

// Instances returns the Instances that list the node, by name, even if the node does not see their
// devices. Of two Instances with one name it returns that in the first namespace.
func (s *Snapshot) Instances() map[string]*instancev1.Instance {
	instances := make(map[string]*instancev1.Instance, len(s.instances))
	for _, instance := range s.instances {
		if instances[instance.GetName()] == nil {
			instances[instance.GetName()] = instance
		}
	}
	return instances
}

// InstanceNames returns the names of all Instances that list the node.
func (s *Snapshot) InstanceNames() sets.Set[types.NamespacedName] { return sets.KeySet(s.byName) }

// devices are the devices of a Configuration by the short name of their Instance. Several devices
// can have one short name.
type devices map[string][]*discoveryv1.Device

// put adds or replaces a device. It changes no slice.
func (d devices) put(device *discoveryv1.Device) {
	others := slices.DeleteFunc(slices.Clone(d[device.GetInstance()]), func(other *discoveryv1.Device) bool {
		return other.GetId() == device.GetId()
	})
	d[device.GetInstance()] = append(others, device)
}

// of returns the device of the Instance, or nil. If the Instance has no device id, the short name
// must be that of one device only: a container must not get another device.
func (d devices) of(instance *instancev1.Instance) *discoveryv1.Device {
	named := d[akriv0.ShortInstanceName(instance.GetName())]
	if instance.GetDeviceId() == "" {
		if len(named) == 1 && named[0].GetInstance() == instance.GetName() {
			return named[0]
		}
		return nil
	}
	for _, device := range named {
		if device.GetId() == instance.GetDeviceId() {
			return device
		}
	}
	return nil
}

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
