package v0

import (
	"fmt"
	"strconv"
	"strings"
)

// SlotHolder is who holds a slot. The zero value is a free slot.
type SlotHolder struct {
	Node string
	// VirtualID is set, together with Configuration, when the slot is held through
	// akri.sh/<configuration>.
	VirtualID     string
	Configuration bool
}

const configurationPrefix = "C:"

// Free reports whether nobody holds the slot.
func (h SlotHolder) Free() bool { return h == SlotHolder{} }

// String is the value in deviceUsage: empty, `<node>` or `C:<virtual id>:<node>`.
func (h SlotHolder) String() string {
	if h.Configuration {
		return configurationPrefix + h.VirtualID + ":" + h.Node
	}
	return h.Node
}

// ParseSlotHolder reads a value of deviceUsage. Both forms of virtual id are accepted, `<n>` and
// the `<configuration>-<n>` that Akri 0.13 writes.
func ParseSlotHolder(value string) (SlotHolder, error) {
	rest, ofConfiguration := strings.CutPrefix(value, configurationPrefix)
	if !ofConfiguration {
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

// SlotName is the key in deviceUsage and the kubelet's device id, `<instance>-<index>`.
func SlotName(instance string, index int) string {
	return instance + "-" + strconv.Itoa(index)
}

// SlotIndex reads the index out of a slot's name.
func SlotIndex(instance, slot string) (int, error) {
	digits, ok := strings.CutPrefix(slot, instance+"-")
	index, err := strconv.ParseUint(digits, 10, 31)
	if !ok || err != nil || strconv.FormatUint(index, 10) != digits {
		return 0, fmt.Errorf("slot %q does not belong to Instance %q: want %q", slot, instance, instance+"-<index>")
	}
	return int(index), nil
}
