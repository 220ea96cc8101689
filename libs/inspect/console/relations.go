package console

import (
	"maps"
	"slices"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

const (
	// maxRelatedDevices is the number of devices in the picture of relations.
	maxRelatedDevices = 20
	// maxRelated is the number of nodes of a device in it, and of slots that a node holds.
	maxRelated = 5
)

// relation is an object in the picture Configuration, device, node, slot, Pod, with those that
// follow from it.
type relation struct {
	reference

	Kind string
	Next []relation
	// More is the number of objects that follow and are not shown, and MorePath the page with them.
	More     int
	MorePath string
}

func (r *relation) limit(most int) {
	if r.More = max(len(r.Next)-most, 0); r.More > 0 {
		r.Next = r.Next[:most]
	}
}

// relations returns the picture of the Configuration with the devices.
func (v view) relations(namespace, name string, instances []*akriv0.Instance) relation {
	root := relation{
		Kind: "Configuration", reference: reference{namespace + "/" + name, objectPath("configurations", namespace, name)},
		More: max(len(instances)-maxRelatedDevices, 0), MorePath: "/devices?configuration=" + namespace + "/" + name,
	}
	shown := instances[:min(len(instances), maxRelatedDevices)]
	slots := map[string][]slotRow{}
	for _, slot := range v.slotRows(v.Slots(shown...)) {
		slots[slot.Instance] = append(slots[slot.Instance], slot)
	}
	for _, instance := range shown {
		root.Next = append(root.Next, relationOf(instance, slots[instance.Name]))
	}
	return root
}

// relationOf returns a device with the nodes that see it or hold slots of it. Those that hold slots
// come first.
func relationOf(instance *akriv0.Instance, slots []slotRow) relation {
	path := objectPath("devices", instance.Namespace, instance.Name)
	device := relation{Kind: "device", reference: reference{instance.Name, path}, MorePath: path}
	held := map[string]*relation{}
	for _, slot := range slots {
		if slot.Node == "" {
			continue
		}
		if held[slot.Node] == nil {
			held[slot.Node] = nodeRelation(slot.Node)
		}
		next := relation{Kind: "slot", reference: reference{Name: slot.Slot.Slot}}
		for _, user := range slot.Users {
			next.Next = append(next.Next, relation{Kind: "Pod", reference: user})
		}
		held[slot.Node].Next = append(held[slot.Node].Next, next)
	}

	var without []relation
	for _, name := range instance.Spec.Nodes {
		if held[name] == nil {
			without = append(without, *nodeRelation(name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(held)) {
		held[name].limit(maxRelated)
		device.Next = append(device.Next, *held[name])
	}
	device.Next = slices.Concat(device.Next, without)
	device.limit(maxRelated)
	return device
}

func nodeRelation(name string) *relation {
	path := path(akriv0.Subject{Kind: "Node", Name: name})
	return &relation{Kind: "node", reference: reference{name, path}, MorePath: path}
}
