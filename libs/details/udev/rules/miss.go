package rules

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
)

// Miss is how close a device comes to matching a rule.
type Miss struct {
	// Met are the keys that match, and Missed is the first that does not, in the order and with the
	// text of the rule. Missed is empty if the rule matches.
	Met    []string
	Missed string
	// Value is that of the device, or of the ancestor that plural keys are compared with. Exists is
	// false if it is missing.
	Value  string
	Exists bool
	// Left is the number of keys that do not match.
	Left int
	// Selective is true if Met has a key with ==, or the name of Missed selects few devices, such
	// as ATTR{idVendor}. Most devices match a key with !=.
	Selective bool

	index int // of Missed in the rule
}

// Compare orders misses: the closest first. Users write the key that matters most first.
func (m Miss) Compare(other Miss) int {
	return cmp.Or(
		cmp.Compare(m.Left, other.Left), cmp.Compare(len(other.Met), len(m.Met)),
		cmp.Compare(other.index, m.index), cmp.Compare(other.rank(), m.rank()),
	)
}

func (m Miss) rank() int {
	if m.Exists {
		return 1
	}
	return 0
}

// Miss compares all keys of the rule with the device, while Matches ends at the first that does not
// match. Plural keys are those of the ancestor that matches most of them.
func (r Rule) Miss(device Device) Miss {
	best := r.missAt(device, device)
	if len(r.parents) == 0 {
		return best
	}
	for ancestor := device.Parent(); ancestor != nil; ancestor = ancestor.Parent() {
		if miss := r.missAt(device, ancestor); miss.Compare(best) < 0 {
			best = miss
		}
	}
	return best
}

// missAt compares the plural keys with the ancestor.
func (r Rule) missAt(device, ancestor Device) Miss {
	var miss Miss
	keys := slices.Concat(r.own, r.parents)
	slices.SortFunc(keys, func(a, b match) int { return cmp.Compare(a.position, b.position) })
	for i, m := range keys {
		compared := device
		if m.key.parents {
			compared = ancestor
		}
		switch {
		case m.matches(compared):
			miss.Met = append(miss.Met, m.text)
			miss.Selective = miss.Selective || !m.negated
			continue
		case miss.Missed == "":
			miss.Missed, miss.index = m.text, i
			miss.Value, miss.Exists = m.value(compared)
		}
		miss.Left++
	}
	miss.Selective = miss.Selective || len(keys) == 1 && keys[0].key.named && miss.Exists
	return miss
}

// value returns the value of the device that the match is about.
func (m match) value(device Device) (value string, exists bool) {
	switch m.key.field {
	case tag:
		value = strings.Join(device.Tags(), ", ")
	case attribute:
		value, exists = device.Attribute(m.name)
		return strings.TrimRightFunc(value, unicode.IsSpace), exists
	default:
		value = m.key.read(device, m.name)
	}
	return value, value != ""
}
