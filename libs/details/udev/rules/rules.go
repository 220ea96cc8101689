// Package rules parses udev match rules and matches devices with them. It has the semantics of
// udev: values are globs with alternatives, and plural keys must all match the same ancestor.
//
// It does not use sysfs or libudev: a device is an interface.
package rules

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Device is a device of the kernel. A value that it does not have is empty.
type Device interface {
	// Devpath is the path without /sys.
	Devpath() string
	// Kernel is the last element of the path, with '/' for each '!'.
	Kernel() string
	Subsystem() string
	Driver() string
	// Attribute reads a file of sysfs. It returns false if the file does not exist or is not
	// readable.
	Attribute(name string) (string, bool)
	// Property reads the udev database.
	Property(name string) string
	// Attributes and Properties return the names. Attributes of subdirectories are left out.
	Attributes() []string
	Properties() []string
	Tags() []string
	// Parent is nil for the root.
	Parent() Device
	// Exists returns false if the device was removed after it was listed.
	Exists() bool
	// Devnode is the path in /dev.
	Devnode() string
	// IOMMUGroup is the number of the IOMMU group.
	IOMMUGroup() string
	// Inode is the number of the device's directory in sysfs. A device that is plugged in again has
	// another one.
	Inode() uint64
	// Initialized returns when udevd initialized the device, or the zero time if udevd has not
	// stored it. It returns false while the udev database has no entry of the device and while
	// udevd still processes its first event.
	Initialized() (at time.Time, initialized bool)
	// Entry is the name of the device's entry in the udev database.
	Entry() string
	// Stored reports whether udevd always adds an entry for such a device to its database: the
	// device has a device number, or it is a network interface.
	Stored() bool
}

// Rule is a conjunction of matches.
type Rule struct {
	text    string
	own     []match
	parents []match
}

// String returns the text of the rule.
func (r Rule) String() string { return r.text }

// Matches reports whether the rule matches the device. Its plural keys (ATTRS, DRIVERS, KERNELS,
// SUBSYSTEMS, TAGS) must all match the device itself or all match the same ancestor.
func (r Rule) Matches(device Device) bool {
	if !matchAll(r.own, device) {
		return false
	}
	for ; device != nil; device = device.Parent() {
		if matchAll(r.parents, device) {
			return true
		}
	}
	return false
}

func matchAll(matches []match, device Device) bool {
	for _, m := range matches {
		if !m.matches(device) {
			return false
		}
	}
	return true
}

// match is one KEY{name}=="value" of a rule.
type match struct {
	key     key
	name    string
	negated bool
	pattern pattern
	// position and text are those in the rule, and value is that in the text.
	position    int
	text, value string
}

func (m match) matches(device Device) bool {
	switch m.key.field {
	case tag:
		return slices.ContainsFunc(device.Tags(), m.pattern.matches) != m.negated
	case attribute:
		return m.matchesAttribute(device)
	default:
		return m.matchesValue(m.key.read(device, m.name))
	}
}

func (m match) matchesValue(value string) bool { return m.pattern.matches(value) != m.negated }

// matchesAttribute returns false for a missing attribute with both operators, as udev does.
func (m match) matchesAttribute(device Device) bool {
	value, exists := m.attribute(device)
	return exists && m.matchesValue(value)
}

// attribute returns the value that the pattern is compared with.
func (m match) attribute(device Device) (value string, exists bool) {
	value, exists = device.Attribute(m.name)
	if m.pattern.trim {
		value = strings.TrimRightFunc(value, unicode.IsSpace)
	}
	return value, exists
}

// Source selects a value of a device: a key of a rule without operator and value, such as
// ATTRS{serial}.
type Source struct {
	key  key
	name string
}

// Read returns the value without trailing white space, or "". A plural key reads the device or its
// nearest ancestor with a value.
func (s Source) Read(device Device) string {
	for ; device != nil; device = device.Parent() {
		value := strings.TrimRightFunc(s.key.read(device, s.name), unicode.IsSpace)
		if value != "" || !s.key.parents {
			return value
		}
	}
	return ""
}

// read returns the value of a key's field. Tags have no single value.
func (k key) read(device Device, name string) (value string) {
	switch k.field {
	case devpath:
		return device.Devpath()
	case kernel:
		return device.Kernel()
	case subsystem:
		return device.Subsystem()
	case driver:
		return device.Driver()
	case property:
		return device.Property(name)
	case attribute:
		value, _ = device.Attribute(name)
	}
	return value
}

// pattern is the value of a match: alternative globs.
type pattern struct {
	globs []string
	// trim ignores trailing white space of an attribute. Like udev, it is false if the value ends
	// in white space.
	trim bool
}

func newPattern(value string) pattern {
	return pattern{
		globs: strings.Split(value, "|"),
		trim:  value == "" || !unicode.IsSpace(rune(value[len(value)-1])),
	}
}

// matches reports whether one of the globs matches the whole string.
func (p pattern) matches(s string) bool {
	return slices.ContainsFunc(p.globs, func(glob string) bool { return fnmatch(glob, s) })
}

// fnmatch behaves like fnmatch(3) without flags, which udev uses: * and ? also match /, and a [
// without a closing ] is an ordinary character. Only the last star is retried, so the time is
// bounded by the product of the lengths.
func fnmatch(glob, s string) bool {
	starGlob, starRest, hasStar := "", "", false
	for s != "" || glob != "" {
		if strings.HasPrefix(glob, "*") {
			glob = glob[1:]
			starGlob, starRest, hasStar = glob, s, true
			continue
		}
		if rest, ok := matchOne(glob, s); ok {
			_, width := utf8.DecodeRuneInString(s)
			glob, s = rest, s[width:]
			continue
		}

		if !hasStar || starRest == "" {
			return false
		}
		_, width := utf8.DecodeRuneInString(starRest)
		starRest = starRest[width:]
		glob, s = starGlob, starRest
	}
	return true
}

// matchOne matches the first element of the glob, which is not a star, with the first character of
// s. It returns the glob after the element.
func matchOne(glob, s string) (rest string, ok bool) {
	if glob == "" || s == "" {
		return "", false
	}
	char, _ := utf8.DecodeRuneInString(s)
	expected, width := utf8.DecodeRuneInString(glob)
	switch expected {
	case '?':
		return glob[1:], true
	case '[':
		if set, rest, closed := parseBracket(glob[1:]); closed {
			return rest, set.contains(char)
		}
	case '\\':
		if len(glob) > 1 {
			expected, width = utf8.DecodeRuneInString(glob[1:])
			width++
		}
	}
	return glob[width:], expected == char
}

// charSet is a bracket expression of a glob.
type charSet struct {
	negated bool
	ranges  [][2]rune
	classes []func(rune) bool
}

func (s charSet) contains(char rune) bool {
	contained := slices.ContainsFunc(s.ranges, func(r [2]rune) bool { return r[0] <= char && char <= r[1] }) ||
		slices.ContainsFunc(s.classes, func(class func(rune) bool) bool { return class(char) })
	return contained != s.negated
}

// parseBracket reads a bracket expression after its [. A ] in the first position belongs to the
// set.
func parseBracket(glob string) (s charSet, rest string, closed bool) {
	if strings.HasPrefix(glob, "!") || strings.HasPrefix(glob, "^") {
		s.negated = true
		glob = glob[1:]
	}

	for first := true; glob != ""; first = false {
		if glob[0] == ']' && !first {
			return s, glob[1:], true
		}
		if class, rest, ok := parseClass(glob); ok {
			s.classes = append(s.classes, class)
			glob = rest
			continue
		}

		var low, high rune
		low, glob = parseChar(glob)
		high = low
		if len(glob) > 1 && glob[0] == '-' && glob[1] != ']' {
			high, glob = parseChar(glob[1:])
		}
		s.ranges = append(s.ranges, [2]rune{low, high})
	}
	return charSet{}, "", false
}

// parseChar reads one character, with an optional backslash before it.
func parseChar(glob string) (rune, string) {
	if glob[0] == '\\' && len(glob) > 1 {
		glob = glob[1:]
	}
	r, width := utf8.DecodeRuneInString(glob)
	return r, glob[width:]
}

var classes = map[string]func(rune) bool{
	"alnum":  func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) },
	"alpha":  unicode.IsLetter,
	"digit":  func(r rune) bool { return '0' <= r && r <= '9' },
	"lower":  unicode.IsLower,
	"punct":  func(r rune) bool { return unicode.IsPunct(r) || unicode.IsSymbol(r) },
	"space":  unicode.IsSpace,
	"upper":  unicode.IsUpper,
	"xdigit": func(r rune) bool { return unicode.Is(unicode.ASCII_Hex_Digit, r) },
}

// parseClass reads a character class such as [:digit:].
func parseClass(glob string) (is func(rune) bool, rest string, ok bool) {
	inside, found := strings.CutPrefix(glob, "[:")
	if !found {
		return nil, "", false
	}
	name, rest, found := strings.Cut(inside, ":]")
	is, exists := classes[name]
	return is, rest, found && exists
}
