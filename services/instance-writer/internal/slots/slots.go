// Package slots reads and changes `deviceUsage`, the holders of an Instance's slots. Functions that
// change an Instance need the caller's own copy.
//
// A malformed value is kept and never offered or overwritten, because the slot may be in use. A
// slot without an entry is free. Keys that do not name a slot of the Instance are ignored.
package slots

import (
	"cmp"
	"fmt"
	"slices"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Slot is one entry of `deviceUsage`.
type Slot struct {
	Index int
	// Holder is the zero value when the slot is free or malformed.
	Holder akriv0.SlotHolder
	// Malformed is the value if it is malformed.
	Malformed string
}

// Free reports whether the slot can be reserved.
func (s Slot) Free() bool { return s.Holder.Free() && s.Malformed == "" }

// Reason is the machine-readable cause of a Refusal.
type Reason string

// Reasons of a Refusal.
const (
	// OutOfRange means that the index is negative or not below the capacity.
	OutOfRange Reason = "SlotOutOfRange"
	// NodeNotListed means that the Instance does not list the node.
	NodeNotListed Reason = "NodeNotListed"
	// Malformed means that the value of the slot is malformed.
	Malformed Reason = "SlotMalformed"
	// Held means that the slot has another holder.
	Held Reason = "SlotHeld"
)

// Refusal is the error of a reservation that is refused.
type Refusal struct {
	Slot    string
	Reason  Reason
	Message string
}

// Error implements error.
func (r *Refusal) Error() string { return fmt.Sprintf("slot %q: %s", r.Slot, r.Message) }

// List returns every slot below the capacity, and every slot at or above it that is not free,
// ordered by index.
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

// MalformedMessages returns a message for each slot with a malformed value.
func MalformedMessages(instance *akriv0.Instance) []string {
	var messages []string
	for _, slot := range List(instance) {
		if slot.Malformed != "" {
			messages = append(messages, fmt.Sprintf("slot %q is not offered because its value %q is malformed; "+
				`set it to "" (free), "<node>", "C:<virtual id>:<node>" or "D:<claim uid>:<node>"`,
				akriv0.SlotName(instance.Name, slot.Index), slot.Malformed))
		}
	}
	return messages
}

// SetStatus counts the slots of the Instance.
func SetStatus(instance *akriv0.Instance) {
	listed := List(instance)
	used := slices.DeleteFunc(slices.Clone(listed), Slot.Free)
	instance.Status = akriv0.InstanceStatus{SlotsUsed: int32(len(used)), SlotsFree: int32(len(listed) - len(used))}
}

// Reserve reserves the slot for the holder. It succeeds if the holder has the slot already. It
// returns a *Refusal and changes nothing if the slot cannot be reserved.
func Reserve(instance *akriv0.Instance, index int, holder akriv0.SlotHolder) error {
	name := akriv0.SlotName(instance.Name, index)
	slot := at(instance, index)
	switch {
	case !slices.Contains(instance.Spec.Nodes, holder.Node):
		return &Refusal{name, NodeNotListed, fmt.Sprintf("the Instance does not list node %q", holder.Node)}
	case slot.Malformed != "":
		return &Refusal{name, Malformed, fmt.Sprintf("the value %q is malformed", slot.Malformed)}
	case slot.Holder == holder:
		return nil
	case index < 0 || index >= int(instance.Spec.Capacity):
		return &Refusal{name, OutOfRange, fmt.Sprintf("the index must be below the capacity, %d", instance.Spec.Capacity)}
	case !slot.Free():
		return &Refusal{name, Held, fmt.Sprintf("held by %q", slot.Holder)}
	}
	set(instance, name, holder.String())
	return nil
}

// Release frees the slot if the holder has it. The entry of a slot at or above the capacity is
// removed.
func Release(instance *akriv0.Instance, index int, holder akriv0.SlotHolder) {
	slot := at(instance, index)
	if slot.Malformed == "" && slot.Holder == holder && !holder.Free() {
		free(instance, index)
	}
}

// Holders returns the nodes that hold slots of the Instance, in no particular order.
func Holders(instance *akriv0.Instance) []string {
	var nodes []string
	for key, value := range instance.Spec.DeviceUsage {
		if value == "" {
			continue
		}
		index, err := akriv0.SlotIndex(instance.Name, key)
		if err != nil {
			continue
		}
		if node := at(instance, index).Holder.Node; node != "" && !slices.Contains(nodes, node) {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// Fit frees the slots of nodes that have left. It adds an entry for each free slot below the
// capacity and removes the entries of free slots at or above it.
func Fit(instance *akriv0.Instance, hasLeft func(node string) bool) {
	for key := range instance.Spec.DeviceUsage {
		index, err := akriv0.SlotIndex(instance.Name, key)
		if err != nil {
			continue
		}
		slot := at(instance, index)
		if slot.Malformed == "" && (slot.Free() || hasLeft(slot.Holder.Node)) {
			free(instance, index)
		}
	}
	for index := range int(instance.Spec.Capacity) {
		if slot := at(instance, index); slot.Free() {
			free(instance, index)
		}
	}
}

// at returns one slot. Virtual ids in upstream Akri's form, `<configuration>-<n>`, are returned
// unchanged: the kubelet has the device under this id.
func at(instance *akriv0.Instance, index int) Slot {
	value := instance.Spec.DeviceUsage[akriv0.SlotName(instance.Name, index)]
	if value == "" {
		return Slot{Index: index}
	}
	holder, err := akriv0.ParseSlotHolder(value)
	if err != nil {
		return Slot{Index: index, Malformed: value}
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
