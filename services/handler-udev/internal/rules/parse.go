package rules

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// Error is a mistake in a rule and where it is.
type Error struct {
	// Position counts bytes from 1.
	Position int
	Reason   string
}

func (e *Error) Error() string { return fmt.Sprintf("position %d: %s", e.Position, e.Reason) }

// Parse reads one rule: `KEY=="value"` or `KEY{name}!="value"`, separated by commas, with white space around anything.
// Errors are of type *Error.
func Parse(text string) (Rule, error) {
	matches, err := (&parser{text: text}).matches()
	if err != nil {
		return Rule{}, err
	}
	// The order of a conjunction means nothing: attributes, which are files to read, come last.
	slices.SortStableFunc(matches, func(a, b match) int { return cmp.Compare(a.key.of, b.key.of) })
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

// parser is a cursor over a rule.
type parser struct {
	text string
	at   int
}

func (p *parser) done() bool   { return p.at == len(p.text) }
func (p *parser) rest() string { return p.text[p.at:] }

func (p *parser) fail(format string, arguments ...any) error {
	return p.failAt(p.at, format, arguments...)
}

func (p *parser) failAt(at int, format string, arguments ...any) error {
	return &Error{Position: at + 1, Reason: fmt.Sprintf(format, arguments...)}
}

func (p *parser) spaces() {
	p.at = len(p.text) - len(strings.TrimLeft(p.rest(), " \t\r\n"))
}

func (p *parser) take(token string) bool {
	if !strings.HasPrefix(p.rest(), token) {
		return false
	}
	p.at += len(token)
	return true
}

// word takes what a key is made of.
func (p *parser) word() string {
	end := strings.IndexFunc(p.rest(), func(r rune) bool { return (r < 'A' || r > 'Z') && r != '_' })
	if end < 0 {
		end = len(p.rest())
	}
	word := p.rest()[:end]
	p.at += end
	return word
}

func (p *parser) matches() ([]match, error) {
	if p.spaces(); p.done() {
		return nil, p.fail("empty rule: it would match every device")
	}
	var matches []match
	for {
		m, err := p.match()
		if err != nil {
			return nil, err
		}
		matches = append(matches, m)
		if p.spaces(); p.done() {
			return matches, nil
		}
		if !p.take(",") {
			return nil, p.fail("want a comma or the end of the rule")
		}
		if p.spaces(); p.done() {
			return nil, p.fail("want a match after the comma")
		}
	}
}

func (p *parser) match() (match, error) {
	key, name, err := p.key()
	if err != nil {
		return match{}, err
	}
	p.spaces()
	negated, err := p.operator()
	if err != nil {
		return match{}, err
	}
	p.spaces()
	value, err := p.value()
	if err != nil {
		return match{}, err
	}
	if key.of == subsystem && (value == "bus" || value == "class" || value == "subsystem") {
		value = "bus|class|subsystem" // udev takes the three for one
	}
	return match{key: key, name: name, negated: negated, pattern: newPattern(value)}, nil
}

func (p *parser) key() (key, string, error) {
	began := p.at
	word := p.word()
	if reason, known := foreign[word]; known {
		return key{}, "", p.failAt(began, "key %s is not supported (%s); supported: %s", word, reason, supported)
	}
	k, known := keys[word]
	if !known {
		return key{}, "", p.failAt(began, "want one of the keys %s", supported)
	}
	braces := p.take("{")
	if braces != k.named {
		if k.named {
			return key{}, "", p.fail("%s wants a name in braces: %s{name}", word, word)
		}
		return key{}, "", p.fail("%s has no name in braces", word)
	}
	if !braces {
		return k, "", nil
	}
	name, err := p.name(k)
	return k, name, err
}

func (p *parser) name(k key) (string, error) {
	began := p.at
	name, _, closed := strings.Cut(p.rest(), "}")
	if !closed {
		return "", p.failAt(began, "want a closing brace")
	}
	p.at += len(name) + 1
	if err := checkName(k, name); err != nil {
		return "", p.failAt(began, "name %q: %s", name, err)
	}
	return name, nil
}

// checkName keeps attributes within their device: reading is all that a rule may do, and reading some files of sysfs
// does things.
func checkName(k key, name string) error {
	switch {
	case strings.TrimSpace(name) == "":
		return errors.New("want one")
	case strings.ContainsFunc(name, isControl):
		return errors.New("control character")
	case k.of != attribute:
		return nil
	case strings.HasPrefix(name, "["):
		return errors.New("attributes of another device are not supported")
	case path.IsAbs(name) || path.Clean(name) != name || name == ".." || strings.HasPrefix(name, "../"):
		return errors.New("want a file of the device, not a path with '.' or '..' in it")
	}
	return nil
}

func (p *parser) operator() (negated bool, err error) {
	switch {
	case p.take("=="):
		return false, nil
	case p.take("!="):
		return true, nil
	}
	for _, assignment := range []string{"=", "+=", "-=", ":="} {
		if strings.HasPrefix(p.rest(), assignment) {
			return false, p.fail("operator %s assigns and is not supported; supported: ==, !=", assignment)
		}
	}
	return false, p.fail("want an operator: == or !=")
}

func (p *parser) value() (string, error) {
	began := p.at
	if !p.take(`"`) {
		return "", p.fail("want a value in double quotes")
	}
	var value strings.Builder
	for !p.done() {
		switch {
		case p.take(`\"`):
			value.WriteByte('"')
		case p.take(`"`):
			return value.String(), nil
		case isControl(rune(p.rest()[0])):
			return "", p.fail("control character in a value")
		default:
			value.WriteByte(p.rest()[0])
			p.at++
		}
	}
	return "", p.failAt(began, "want a closing double quote")
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }
