package node

import (
	"cmp"
	"maps"
	"slices"

	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// View is all that the node knows at one moment. It does not change.
type View struct {
	// Node is this node's name.
	Node string
	// Devices are those that can be offered, by Instance: this node sees the device and the Instance lists the node.
	// Kubelet resources have no namespace; of two Instances with one name the first namespace counts.
	Devices map[string]Device
	// Configurations are those with such a device, by name.
	Configurations map[string]Key

	instances []*instancev1.Instance // in the order of namespaces and names
	byKey     map[Key]*instancev1.Instance
}

// Device is one that is seen and has an Instance.
type Device struct {
	Instance *instancev1.Instance
	// Content is what a container that gets the device receives.
	Content *discoveryv1.Device
}

func newView(node string, instances map[Key]*instancev1.Instance, inventory map[Key]map[string]*discoveryv1.Device) *View {
	view := &View{Node: node, Devices: map[string]Device{}, Configurations: map[string]Key{}, byKey: maps.Clone(instances)}
	view.instances = slices.SortedFunc(maps.Values(instances), func(a, b *instancev1.Instance) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	for _, instance := range view.instances {
		configuration := Key{instance.GetNamespace(), instance.GetConfiguration()}
		content := inventory[configuration][instance.GetName()]
		if _, taken := view.Devices[instance.GetName()]; content == nil || taken {
			continue
		}
		view.Devices[instance.GetName()] = Device{Instance: instance, Content: content}
		if _, taken := view.Configurations[configuration.Name]; !taken {
			view.Configurations[configuration.Name] = configuration
		}
	}
	return view
}

// Instances are those that list the node, by name, whether or not it sees their devices. Of two with one name the first
// namespace counts.
func (v *View) Instances() map[string]*instancev1.Instance {
	byName := make(map[string]*instancev1.Instance, len(v.instances))
	for _, instance := range v.instances {
		if byName[instance.GetName()] == nil {
			byName[instance.GetName()] = instance
		}
	}
	return byName
}

// Keys are the names of all Instances that list the node.
func (v *View) Keys() map[Key]bool {
	keys := make(map[Key]bool, len(v.byKey))
	for key := range v.byKey {
		keys[key] = true
	}
	return keys
}
