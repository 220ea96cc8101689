package v0

import (
	"fmt"
	"strconv"
	"strings"
)

// SlotHolder identifies the holder of a slot. The zero value stands for a free slot.
type SlotHolder struct {
	Node string
	// VirtualID is the device id that the kubelet uses if Configuration is true.
	VirtualID string
	// Configuration is true if the slot is held through akri.sh/<configuration>.
	Configuration bool
}

const configurationPrefix = "C:"

// Free reports whether the slot is free.
func (h SlotHolder) Free() bool { return h == SlotHolder{} }

// String returns the value for deviceUsage: empty, `<node>` or `C:<virtual id>:<node>`.
func (h SlotHolder) String() string {
	if h.Configuration {
		return configurationPrefix + h.VirtualID + ":" + h.Node
	}
	return h.Node
}

// ParseSlotHolder parses a value of deviceUsage. It accepts both forms of virtual id: `<n>`, and
// `<configuration>-<n>` as upstream Akri 0.13 writes it.
func ParseSlotHolder(value string) (SlotHolder, error) {
	rest, isConfiguration := strings.CutPrefix(value, configurationPrefix)
	if !isConfiguration {
		if strings.ContainsRune(value, ':') {
			return SlotHolder{}, malformedHolder(value)
		}
		return SlotHolder{Node: value}, nil
	}
	id, node, ok := strings.Cut(rest, ":")
	if !ok || id == "" || node == "" || strings.ContainsRune(node, ':') {
		return SlotHolder{}, malformedHolder(value)
	}
	return SlotHolder{Node: node, VirtualID: id, Configuration: true}, nil
}

func malformedHolder(value string) error {
	return fmt.Errorf(`slot value %q is malformed: it must be empty, "<node>" or "C:<virtual id>:<node>"`, value)
}

// SlotName returns `<instance>-<index>`, which is the key in deviceUsage and the kubelet's device
// id.
func SlotName(instance string, index int) string {
	return instance + "-" + strconv.Itoa(index)
}

// SlotIndex parses the index from the name of a slot.
func SlotIndex(instance, slot string) (int, error) {
	digits, ok := strings.CutPrefix(slot, instance+"-")
	index, err := strconv.ParseUint(digits, 10, 31)
	if !ok || err != nil || strconv.FormatUint(index, 10) != digits {
		return 0, fmt.Errorf("slot name %q of Instance %q is malformed: it must be %q", slot, instance, instance+"-<index>")
	}
	return int(index), nil
}
