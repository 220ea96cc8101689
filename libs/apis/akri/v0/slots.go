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
	// Claim is the uid of the ResourceClaim that holds the slot, if Dynamic Resource Allocation
	// allocated the device. The other forms are those of device plugins.
	Claim string
}

const (
	configurationPrefix = "C:"
	claimPrefix         = "D:"
)

// Free reports whether the slot is free.
func (h SlotHolder) Free() bool { return h == SlotHolder{} }

// String returns the value for deviceUsage: empty, `<node>`, `C:<virtual id>:<node>` or `D:<uid of
// the ResourceClaim>:<node>`.
func (h SlotHolder) String() string {
	switch {
	case h.Configuration:
		return configurationPrefix + h.VirtualID + ":" + h.Node
	case h.Claim != "":
		return claimPrefix + h.Claim + ":" + h.Node
	default:
		return h.Node
	}
}

// ParseSlotHolder parses a value of deviceUsage. It accepts both forms of virtual id: `<n>`, and
// `<configuration>-<n>` as upstream Akri 0.13 writes it.
func ParseSlotHolder(value string) (SlotHolder, error) {
	parts := strings.Split(value, ":")
	switch {
	case len(parts) == 1:
		return SlotHolder{Node: value}, nil
	case len(parts) != 3 || parts[1] == "" || parts[2] == "":
	case strings.HasPrefix(value, configurationPrefix):
		return SlotHolder{Node: parts[2], VirtualID: parts[1], Configuration: true}, nil
	case strings.HasPrefix(value, claimPrefix):
		return SlotHolder{Node: parts[2], Claim: parts[1]}, nil
	}
	return SlotHolder{}, fmt.Errorf(
		`slot value %q is malformed: it must be empty, "<node>", "C:<virtual id>:<node>" or "D:<claim uid>:<node>"`, value)
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
