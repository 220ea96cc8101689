// Package slots is the arithmetic of `deviceUsage`: who holds which slot of an Instance. All
// functions are pure but for the Instance that they are given, which must be the caller's own copy.
//
// A value that cannot be read is kept, shown as malformed, and never offered or overwritten: it may
// be somebody's. A key that is missing means free. Keys that are not slots of the Instance are left
// alone.
package slots

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Slot is one entry of `deviceUsage`.
type Slot struct {
	Index int
	// Holder is the zero value when the slot is free or malformed.
	Holder akriv0.SlotHolder
	// Malformed is the text of a value that cannot be read.
	Malformed string
}

// Free reports whether the slot can be taken.
func (s Slot) Free() bool { return s.Holder.Free() && s.Malformed == "" }

// Reason says why a slot is not given.
type Reason string

// Reasons of a Refusal.
const (
	// OutOfRange: the index is at or above the capacity, or negative.
	OutOfRange Reason = "SlotOutOfRange"
	// NodeNotListed: the node does not see the device.
	NodeNotListed Reason = "NodeNotListed"
	// Malformed: the slot's value cannot be read.
	Malformed Reason = "SlotMalformed"
	// Held: somebody else has the slot.
	Held Reason = "SlotHeld"
)

// Refusal is why a slot was not given.
type Refusal struct {
	Slot    string
	Reason  Reason
	Message string
}

// Error implements error.
func (r *Refusal) Error() string { return fmt.Sprintf("slot %q: %s", r.Slot, r.Message) }

// List returns every slot below capacity and every one at or above it that is not free, by index.
func List(instance *akriv0.Instance) []Slot {
	listed := make([]Slot, 0, instance.Spec.Capacity)
	for index := range int(instance.Spec.Capacity) {
		listed = append(listed, at(instance, index))
	}
	for key := range instance.Spec.DeviceUsage {
		index, err := akriv0.SlotIndex(instance.Name, key)
		if err != nil || index < int(instance.Spec.Capacity) {
			continue
		}
		if slot := at(instance, index); !slot.Free() {
			listed = append(listed, slot)
		}
	}
	slices.SortFunc(listed, func(a, b Slot) int { return cmp.Compare(a.Index, b.Index) })
	return listed
}

// Unreadable says which slots have a value that cannot be read, a sentence for each.
func Unreadable(instance *akriv0.Instance) []string {
	var said []string
	for _, slot := range List(instance) {
		if slot.Malformed != "" {
			said = append(said, fmt.Sprintf("the value %q of slot %q is malformed: want \"\", \"<node>\" or \"C:<virtual id>:<node>\"; the slot is not offered",
				slot.Malformed, akriv0.SlotName(instance.Name, slot.Index)))
		}
	}
	return said
}

// Reserve gives the slot to the holder; one that the holder has already is a success. The error is
// a *Refusal, and nothing changed then.
func Reserve(instance *akriv0.Instance, index int, holder akriv0.SlotHolder) error {
	name := akriv0.SlotName(instance.Name, index)
	slot := at(instance, index)
	switch {
	case !slices.Contains(instance.Spec.Nodes, holder.Node):
		return &Refusal{name, NodeNotListed, fmt.Sprintf("Instance does not list node %q", holder.Node)}
	case slot.Malformed != "":
		return &Refusal{name, Malformed, fmt.Sprintf("its value %q is malformed", slot.Malformed)}
	case slot.Holder == holder:
		return nil
	case index < 0 || index >= int(instance.Spec.Capacity):
		return &Refusal{name, OutOfRange, fmt.Sprintf("capacity is %d", instance.Spec.Capacity)}
	case !slot.Free():
		return &Refusal{name, Held, fmt.Sprintf("held by %q", slot.Holder)}
	}
	set(instance, name, holder.String())
	return nil
}

// Release frees the slot if it is the holder's. A slot at or above the capacity goes altogether.
func Release(instance *akriv0.Instance, index int, holder akriv0.SlotHolder) {
	slot := at(instance, index)
	if slot.Malformed == "" && slot.Holder == holder && !holder.Free() {
		free(instance, index)
	}
}

// Holders are the nodes that have slots of the Instance.
func Holders(instance *akriv0.Instance) []string {
	var nodes []string
	for _, slot := range List(instance) {
		if node := slot.Holder.Node; node != "" && !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// Fit frees the slots of the nodes that left, writes down every free slot below capacity and
// forgets the free ones at or above it.
func Fit(instance *akriv0.Instance, left func(node string) bool) {
	for key := range instance.Spec.DeviceUsage {
		index, err := akriv0.SlotIndex(instance.Name, key)
		if err != nil {
			continue
		}
		slot := at(instance, index)
		if slot.Malformed == "" && (slot.Free() || left(slot.Holder.Node)) {
			free(instance, index)
		}
	}
	for index := range int(instance.Spec.Capacity) {
		if slot := at(instance, index); slot.Free() {
			free(instance, index)
		}
	}
}

// at reads one slot. Akri 0.13 wrote virtual ids as `<configuration>-<n>`; they read as `<n>`.
func at(instance *akriv0.Instance, index int) Slot {
	value := instance.Spec.DeviceUsage[akriv0.SlotName(instance.Name, index)]
	holder, err := akriv0.ParseSlotHolder(value)
	if err != nil {
		return Slot{Index: index, Malformed: value}
	}
	if id, ok := strings.CutPrefix(holder.VirtualID, instance.Spec.ConfigurationName+"-"); ok && id != "" {
		holder.VirtualID = id
	}
	return Slot{Index: index, Holder: holder}
}

func free(instance *akriv0.Instance, index int) {
	name := akriv0.SlotName(instance.Name, index)
	if index >= int(instance.Spec.Capacity) {
		delete(instance.Spec.DeviceUsage, name)
		return
	}
	set(instance, name, "")
}

func set(instance *akriv0.Instance, name, value string) {
	if instance.Spec.DeviceUsage == nil {
		instance.Spec.DeviceUsage = map[string]string{}
	}
	instance.Spec.DeviceUsage[name] = value
}
