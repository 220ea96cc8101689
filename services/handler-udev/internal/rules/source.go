package rules

import (
	"strings"
	"unicode"
)

// Source names what of a device to read: a key of rules without operator and value, such as `ATTRS{serial}`.
type Source struct {
	key  key
	name string
}

// ParseSource reads a Source. Errors are of type *Error.
func ParseSource(text string) (Source, error) {
	p := &parser{text: text}
	p.spaces()
	began := p.at
	key, name, err := p.key()
	if err != nil {
		return Source{}, err
	}
	if key.of == tag {
		return Source{}, p.failAt(began, "a device has many tags, and no value of them")
	}
	if p.spaces(); !p.done() {
		return Source{}, p.fail("want a key and nothing after it")
	}
	return Source{key, name}, nil
}

// Read returns the value without white space at its end; empty: the device has none. A key in the plural reads the device
// or its nearest ancestor that has a value.
func (s Source) Read(device Device) string {
	for ; device != nil; device = device.Parent() {
		if value := strings.TrimRightFunc(s.key.read(device, s.name), unicode.IsSpace); value != "" || !s.key.parents {
			return value
		}
	}
	return ""
}

// read is what a key looks at, when that is one value.
func (k key) read(device Device, name string) (value string) {
	switch k.of {
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
