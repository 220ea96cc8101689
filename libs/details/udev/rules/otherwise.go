package rules

import (
	"cmp"
	"slices"
	"strings"

	"akri.sh/libs/typo"
)

// Otherwise returns the miss with corrections of the names of keys, where Miss has no correction of
// their values. It compares the device with keys that are not in the rule, so it takes longer.
func (r Rule) Otherwise(miss Miss, device Device) Miss {
	miss.Missed = slices.Clone(miss.Missed)
	for i := range miss.Missed {
		mismatch := &miss.Missed[i]
		if mismatch.Corrected != "" || mismatch.match.negated {
			continue
		}
		for _, other := range mismatch.match.alternatives(device) {
			if other.matchesAny(device) {
				mismatch.Corrected, mismatch.Distance = other.with(other.value), other.distance
				mismatch.Kind = mismatch.Corrected
				break
			}
		}
	}
	return miss
}

// alternative is a match whose key the user may have meant. Distance is the number of changes.
type alternative struct {
	match

	distance int
}

func (a alternative) matchesAny(device Device) bool {
	for ; device != nil; device = device.Parent() {
		if a.matches(device) {
			return true
		}
		if !a.key.parents {
			return false
		}
	}
	return false
}

// Distances of a key whose value is that of another key.
const (
	ofAncestor   = 1
	ofOtherField = 2
)

// alternatives returns the keys that the user may have meant, the most similar first.
func (m match) alternatives(device Device) []alternative {
	var list []alternative
	add := func(word, name string, distance int) {
		if k, ok := keyOf(word); ok && word+name != m.key.word+m.name {
			other := m
			other.key, other.name = k, name
			list = append(list, alternative{other, distance})
		}
	}

	add(m.key.word+"S", m.name, ofAncestor)
	if m.key.named {
		m.addNames(device, add)
	}
	switch m.key.word {
	case "ATTR", "ATTRS":
		add("ENV", m.name, ofOtherField)
	case "ENV":
		add("ATTRS", m.name, ofOtherField)
	}
	switch {
	case m.key.field == attribute, literals(m.value) < 2: // short values would match by chance
	case strings.HasPrefix(m.value, "/dev/"):
		add("ENV", "DEVNAME", ofOtherField)
	default:
		for _, word := range []string{"KERNEL", "SUBSYSTEM", "DRIVER", "DEVPATH", "KERNELS", "SUBSYSTEMS", "DRIVERS"} {
			add(word, "", ofOtherField)
		}
		if m.key.word == "KERNEL" {
			list = append(list, alternative{m.devname(), ofOtherField})
		}
	}
	slices.SortStableFunc(list, func(a, b alternative) int { return cmp.Compare(a.distance, b.distance) })
	return list
}

// devname compares the device node instead of the name in the kernel: that of /dev/net/tun is tun.
func (m match) devname() match {
	globs := slices.Clone(m.pattern.globs)
	for i := range globs {
		globs[i] = "/dev/" + globs[i]
	}
	m.key, _ = keyOf("ENV")
	m.name, m.value = "DEVNAME", strings.Join(globs, "|")
	m.pattern = newPattern(m.value)
	return m
}

// addNames adds the names of attributes and properties that are similar to a name that does not
// exist.
func (m match) addNames(device Device, add func(word, name string, distance int)) {
	if len(m.values(device)) > 0 {
		return
	}
	wanted := typo.Literal(m.name)
	addSimilar := func(word string, names []string, changes int) {
		for _, name := range names {
			if distance := typo.Distance(wanted, name); distance > 0 && typo.Similar(distance, wanted) {
				add(word, name, distance+changes)
			}
		}
	}

	if m.key.field == property {
		addSimilar(m.key.word, device.Properties(), 0)
		return
	}
	addSimilar(m.key.word, device.Attributes(), 0)
	for ancestor := device.Parent(); ancestor != nil; ancestor = ancestor.Parent() {
		if m.key.parents {
			addSimilar("ATTRS", ancestor.Attributes(), 0)
		} else {
			addSimilar("ATTRS", ancestor.Attributes(), ofAncestor)
		}
	}
}

// literals returns the number of characters that are no wildcards.
func literals(glob string) (count int) {
	for _, e := range elements(glob) {
		if !e.Many && e.Any == nil {
			count++
		}
	}
	return count
}
