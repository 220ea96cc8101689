package rules

import (
	"cmp"
	"slices"
	"strings"

	"akri.sh/libs/typo"
)

// Miss is how close a device comes to matching a rule.
type Miss struct {
	// Met are the keys that match, in the order and with the text of the rule.
	Met []string
	// Missed are the keys that do not match, in the order of the rule. It is empty if the rule
	// matches.
	Missed []Mismatch
	// Selective is true if Met has a key with ==. Most devices match a key with !=.
	Selective bool
}

// Mismatch is a key that does not match.
type Mismatch struct {
	// Key is the text in the rule, and Wanted the value in it.
	Key    string
	Wanted string
	// Found is the value of the device, or of the ancestor that plural keys are compared with.
	// Exists is false if it is missing.
	Found  string
	Exists bool
	// Corrected is a key that matches the device, if a user may have meant it. Otherwise it is
	// empty. Exact is another one if Corrected matches names with any number.
	Corrected, Exact string
	// Kind is Corrected with '#' for numbers in the name of the device: it is equal for devices
	// that differ only in these.
	Kind string
	// Distance is the number of characters in which Wanted and Found differ. It is the number of
	// changes of a key that has another name in Corrected, and 1 for a key with !=.
	Distance int

	match match
	// difference is what the package typo adds to Far.
	difference int
}

// weight is that of the package typo, without regard to how far values differ that are not similar.
func (m Mismatch) weight() int {
	switch {
	case m.Corrected != "", m.match.negated:
		return m.Distance
	case m.Exists:
		return typo.Far
	default:
		return typo.Absent
	}
}

func (m Miss) weight() int {
	sum := 0
	for _, mismatch := range m.Missed {
		sum += mismatch.weight()
	}
	return sum
}

// Distance is lower for the closer of two misses with as many mismatches, also of different rules.
func (m Miss) Distance() int {
	sum := m.weight()
	for _, mismatch := range m.Missed {
		if mismatch.weight() == typo.Far {
			sum += mismatch.difference
		}
	}
	return sum
}

// Compare orders misses: the closest first. Users write the key that matters most first.
func (m Miss) Compare(other Miss) int {
	return cmp.Or(
		cmp.Compare(len(m.Missed), len(other.Missed)), cmp.Compare(m.Distance(), other.Distance()),
		cmp.Compare(len(other.Met), len(m.Met)), cmp.Compare(other.firstMissed(), m.firstMissed()),
	)
}

// closerThan reports whether an ancestor comes closer than a nearer one. How far values differ that
// are not similar does not matter: users expect the nearest of them.
func (m Miss) closerThan(nearer Miss) bool {
	return cmp.Or(
		cmp.Compare(len(m.Missed), len(nearer.Missed)), cmp.Compare(m.weight(), nearer.weight()),
		cmp.Compare(nearer.firstMissed(), m.firstMissed()),
	) < 0
}

func (m Miss) firstMissed() int {
	if len(m.Missed) == 0 {
		return 0
	}
	return m.Missed[0].match.position
}

// Similar reports whether all mismatches are so small that a user may have meant the device.
func (m Miss) Similar() bool { return m.weight() < typo.Far }

// Related reports whether the device has something in common with the rule: a key with == that
// matches or that is misspelt, or the name in the only key, such as ATTR{idVendor}.
func (m Miss) Related() bool {
	if m.Selective || slices.ContainsFunc(m.Missed, func(missed Mismatch) bool { return missed.Corrected != "" }) {
		return true
	}
	return len(m.Met) == 0 && len(m.Missed) == 1 && m.Missed[0].match.key.named && m.Missed[0].Exists
}

// Miss compares all keys of the rule with the device, while Matches ends at the first that does not
// match. Plural keys are those of the ancestor that comes closest.
func (r Rule) Miss(device Device) Miss {
	best := r.missAt(device, device)
	if len(r.parents) == 0 {
		return best
	}
	for ancestor := device.Parent(); ancestor != nil; ancestor = ancestor.Parent() {
		if miss := r.missAt(device, ancestor); miss.closerThan(best) {
			best = miss
		}
	}
	return best
}

// missAt compares the plural keys with the ancestor.
func (r Rule) missAt(device, ancestor Device) Miss {
	var miss Miss
	for _, m := range r.inOrder() {
		compared := device
		if m.key.parents {
			compared = ancestor
		}
		if m.matches(compared) {
			miss.Met = append(miss.Met, m.text)
			miss.Selective = miss.Selective || !m.negated
			continue
		}
		miss.Missed = append(miss.Missed, m.mismatch(compared))
	}
	return miss
}

// inOrder returns the keys in the order of the text.
func (r Rule) inOrder() []match {
	keys := slices.Concat(r.own, r.parents)
	slices.SortFunc(keys, func(a, b match) int { return cmp.Compare(a.position, b.position) })
	return keys
}

func (m match) mismatch(device Device) Mismatch {
	mismatch := Mismatch{Key: m.text, Wanted: m.value, match: m}
	values := m.values(device)
	mismatch.Found, mismatch.Exists = strings.Join(values, ", "), len(values) > 0
	if m.negated { // not corrected: the user excludes the device
		mismatch.Distance = 1
		return mismatch
	}
	best := typo.Absent
	for _, value := range values {
		glob, distance, weight := m.pattern.nearest(value)
		if weight >= best {
			continue
		}
		best, mismatch.Distance = weight, distance
		if weight >= typo.Far {
			mismatch.difference = weight - typo.Far
			continue
		}
		exact, anyNumber := m.pattern.correct(glob, value)
		mismatch.Corrected = m.with(exact)
		if m.key.field == kernel && anyNumber != exact {
			mismatch.Corrected, mismatch.Exact = m.with(anyNumber), mismatch.Corrected
		}
		mismatch.Kind = kindOf(mismatch.Corrected, value, device)
	}
	return mismatch
}

// values returns the values of the device that the match is about: several only for tags.
func (m match) values(device Device) []string {
	var value string
	switch m.key.field {
	case tag:
		return device.Tags()
	case attribute:
		value, exists := m.attribute(device)
		if !exists {
			return nil
		}
		return []string{value}
	default:
		value = m.key.read(device, m.name)
	}
	if value == "" {
		return nil
	}
	return []string{value}
}

// namesDevice reports whether a value ends in the name of the device, as in ENV{DEVNAME}.
func namesDevice(value string, device Device) bool {
	name := device.Kernel()
	return name != "" && strings.HasSuffix(value, name)
}

func kindOf(corrected, value string, device Device) string {
	if !namesDevice(value, device) {
		return corrected
	}
	return number.ReplaceAllString(corrected, "#")
}
