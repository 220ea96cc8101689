package rules

import (
	"strings"
	"unicode"
)

// Source selects a value of a device: a key of a rule without operator and value, such as
// ATTRS{serial}.
type Source struct {
	key  key
	name string
}

// ParseSource reads a Source. Errors are of type *Error.
func ParseSource(text string) (Source, error) {
	p := &parser{text: text}
	p.skipSpace()
	start := p.pos
	key, name, err := p.key()
	if err != nil {
		return Source{}, err
	}
	if key.field == tag {
		return Source{}, p.errorAt(start, "TAG and TAGS cannot be read: a device has several tags")
	}
	if p.skipSpace(); !p.done() {
		return Source{}, p.errorf("expected nothing after the key")
	}
	return Source{key, name}, nil
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
