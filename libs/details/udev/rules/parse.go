package rules

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Error describes a syntax error in a rule.
type Error struct {
	// Position counts bytes from 1.
	Position int
	Reason   string
}

func (e *Error) Error() string { return fmt.Sprintf("position %d: %s", e.Position, e.Reason) }

// Parse reads one rule: KEY=="value" or KEY{name}!="value", separated by commas. White space
// between the parts is ignored. Errors are of type *Error.
func Parse(text string) (Rule, error) {
	matches, err := (&parser{text: text}).matches()
	if err != nil {
		return Rule{}, err
	}
	// The order does not change the result. Attributes come last, because they are files to read.
	slices.SortStableFunc(matches, func(a, b match) int { return cmp.Compare(a.key.field, b.key.field) })
	rule := Rule{text: text}
	for _, m := range matches {
		if m.key.parents {
			rule.parents = append(rule.parents, m)
		} else {
			rule.own = append(rule.own, m)
		}
	}
	return rule, nil
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

// parser reads a rule from left to right.
type parser struct {
	text string
	pos  int
}

func (p *parser) done() bool   { return p.pos == len(p.text) }
func (p *parser) rest() string { return p.text[p.pos:] }

func (p *parser) errorf(format string, args ...any) error {
	return p.errorAt(p.pos, format, args...)
}

func (p *parser) errorAt(pos int, format string, args ...any) error {
	return &Error{Position: pos + 1, Reason: fmt.Sprintf(format, args...)}
}

func (p *parser) skipSpace() {
	p.pos = len(p.text) - len(strings.TrimLeft(p.rest(), " \t\r\n"))
}

// accept consumes the token if it comes next.
func (p *parser) accept(token string) bool {
	if !strings.HasPrefix(p.rest(), token) {
		return false
	}
	p.pos += len(token)
	return true
}

// word consumes letters and underscores.
func (p *parser) word() string {
	end := strings.IndexFunc(p.rest(), func(r rune) bool {
		return (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') && r != '_'
	})
	if end < 0 {
		end = len(p.rest())
	}
	word := p.rest()[:end]
	p.pos += end
	return word
}

func (p *parser) matches() ([]match, error) {
	if p.skipSpace(); p.done() {
		return nil, p.errorf("empty rule: it would match every device")
	}
	var matches []match
	for {
		m, err := p.match()
		if err != nil {
			return nil, err
		}
		matches = append(matches, m)
		if p.skipSpace(); p.done() {
			return matches, nil
		}
		if !p.accept(",") {
			return nil, p.errorf("expected a comma or the end of the rule")
		}
		if p.skipSpace(); p.done() {
			return nil, p.errorf("expected a match after the comma")
		}
	}
}

func (p *parser) match() (match, error) {
	start := p.pos
	key, name, err := p.key()
	if err != nil {
		return match{}, err
	}
	p.skipSpace()
	negated, err := p.operator()
	if err != nil {
		return match{}, err
	}
	p.skipSpace()
	value, err := p.value()
	if err != nil {
		return match{}, err
	}
	m := match{key: key, name: name, negated: negated, value: value, position: start, text: p.text[start:p.pos]}
	if key.field == subsystem && (value == "bus" || value == "class" || value == "subsystem") {
		value = "bus|class|subsystem" // equal for udev
	}
	m.pattern = newPattern(value)
	return m, nil
}

func (p *parser) key() (key, string, error) {
	start := p.pos
	word := p.word()
	if reason, ok := unsupported[word]; ok {
		return key{}, "", p.errorAt(start, "key %s is not supported (%s); use one of %s", word, reason, supported)
	}
	k, ok := keyOf(word)
	switch {
	case word == "":
		return key{}, "", p.errorAt(start, "expected a key; use one of %s", supported)
	case !ok:
		return key{}, "", p.errorAt(start, "unknown key %s; use one of %s", word, supported)
	}
	braces := p.accept("{")
	switch {
	case k.named && !braces:
		return key{}, "", p.errorf("key %s requires a name in braces: %s{name}", word, word)
	case !k.named && braces:
		return key{}, "", p.errorf("key %s must not have a name in braces", word)
	case !braces:
		return k, "", nil
	}
	name, err := p.name(k)
	return k, name, err
}

func (p *parser) name(k key) (string, error) {
	start := p.pos
	name, _, closed := strings.Cut(p.rest(), "}")
	if !closed {
		return "", p.errorAt(start, "expected a closing brace")
	}
	p.pos += len(name) + 1
	if err := checkName(k, name); err != nil {
		return "", p.errorAt(start, "name %q: %s", name, err)
	}
	return name, nil
}

// checkName keeps attributes inside the directory of their device, because reading some other files
// of sysfs has side effects.
func checkName(k key, name string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return errors.New("must not be empty")
	case strings.ContainsFunc(name, isControl):
		return errors.New("must not have control characters")
	case k.field != attribute:
		return nil
	case strings.HasPrefix(name, "["):
		return errors.New("attributes of another device are not supported")
	case path.IsAbs(name) || path.Clean(name) != name || name == ".." || strings.HasPrefix(name, "../"):
		return errors.New("must be a file inside the device's directory")
	}
	return nil
}

func (p *parser) operator() (negated bool, err error) {
	switch {
	case p.accept("=="):
		return false, nil
	case p.accept("!="):
		return true, nil
	}
	for _, assignment := range []string{"=", "+=", "-=", ":="} {
		if strings.HasPrefix(p.rest(), assignment) {
			return false, p.errorf("operator %s assigns and is not supported; use == or !=", assignment)
		}
	}
	return false, p.errorf("expected an operator: == or !=")
}

func (p *parser) value() (string, error) {
	start := p.pos
	if !p.accept(`"`) {
		return "", p.errorf("expected a value in double quotes")
	}
	var value strings.Builder
	for !p.done() {
		switch {
		case p.accept(`\"`):
			value.WriteByte('"')
		case p.accept(`"`):
			return value.String(), nil
		case isControl(rune(p.rest()[0])):
			return "", p.errorf("a value must not have control characters")
		default:
			value.WriteByte(p.rest()[0])
			p.pos++
		}
	}
	return "", p.errorAt(start, "expected a closing double quote")
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }
