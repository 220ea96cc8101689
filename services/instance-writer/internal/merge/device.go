package merge

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"unique"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Device is a device in the report of a node.
type Device struct {
	Node string
	// ShortName is the name of the Instance, unless another device with the same digest has it.
	ShortName  string
	ID         string
	Shared     bool
	Properties Properties
	// Complete means that the report lists all devices of the node.
	Complete bool
}

// Size returns the bytes of the id and the properties.
func (d Device) Size() int { return len(d.ID) + d.Properties.size() }

// Refusal is a device that is not part of the Instance.
type Refusal struct {
	Device
	Reason  string
	Message string
}

// Properties are the environment variables of a device. Equal ones are stored once: all nodes that
// share a device report the same.
type Properties struct {
	encoded unique.Handle[string]
}

// NewProperties returns the Properties with the values.
func NewProperties(values map[string]string) Properties {
	encoded, err := json.Marshal(values)
	if err != nil {
		panic(err) // maps of strings have an encoding
	}
	return Properties{unique.Make(string(encoded))}
}

func (p Properties) size() int {
	if p == (Properties{}) {
		return 0
	}
	return len(p.encoded.Value())
}

// Map returns a new map with the values.
func (p Properties) Map() map[string]string {
	if p == (Properties{}) {
		return nil
	}
	var values map[string]string
	if err := json.Unmarshal([]byte(p.encoded.Value()), &values); err != nil {
		panic(fmt.Sprintf("properties %q: %v", p.encoded.Value(), err)) // NewProperties encoded them
	}
	return values
}

// identity is the device that an Instance represents. The zero value is that of no device.
type identity struct {
	id string
	// node of a local device.
	node string
}

// is reports whether the identity is known to be that of the device.
func (i identity) is(device Device) bool {
	return i.known() && device.ID == i.id && (device.Shared || device.Node == i.node)
}

func (i identity) known() bool { return i.id != "" }

// identityOf returns the identity of an Instance. It is not known if the Instance does not exist or
// was created by upstream Akri.
func identityOf(instance *akriv0.Instance) identity {
	if instance == nil || instance.Annotations[akriv0.DeviceIDAnnotation] == "" {
		return identity{}
	}
	own := identity{id: instance.Annotations[akriv0.DeviceIDAnnotation]}
	if len(instance.Spec.Nodes) > 0 {
		own.node = slices.Min(instance.Spec.Nodes)
	}
	return own
}

// split returns the devices that the Instance represents and the others. An Instance without an
// identity gets that of the first device, by node.
func split(current *akriv0.Instance, devices []Device) (accepted, others []Device) {
	ordered := slices.SortedFunc(slices.Values(devices), func(a, b Device) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID))
	})
	own := identityOf(current)
	for _, device := range ordered {
		if !own.known() && mayAdopt(current, device) {
			own = identity{device.ID, device.Node}
		}
		if own.is(device) {
			accepted = append(accepted, device)
		} else {
			others = append(others, device)
		}
	}
	return accepted, others
}

// mayAdopt reports whether an Instance without an identity can be that of the device.
func mayAdopt(current *akriv0.Instance, device Device) bool {
	return current == nil || device.Shared || len(current.Spec.Nodes) == 0 || slices.Min(current.Spec.Nodes) == device.Node
}
