package rules

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"akri.sh/libs/typo"
)

var number = regexp.MustCompile(`[0-9]+`)

// elements returns the elements of a glob.
func elements(glob string) []typo.Element {
	var list []typo.Element
	for glob != "" {
		e, rest := element(glob)
		e.Text = glob[:len(glob)-len(rest)]
		list = append(list, e)
		glob = rest
	}
	return list
}

// element returns the first element of a glob, and the glob after it.
func element(glob string) (e typo.Element, rest string) {
	switch glob[0] {
	case '*':
		return typo.Element{Many: true}, glob[1:]
	case '?':
		return typo.Element{Any: func(rune) bool { return true }}, glob[1:]
	case '[':
		if set, rest, closed := parseBracket(glob[1:]); closed {
			return typo.Element{Any: set.contains}, rest
		}
	}
	e.Char, rest = parseChar(glob)
	return e, rest
}

// nearest returns the number of the alternative that comes closest to a value, its distance, and
// its weight of the package typo.
func (p pattern) nearest(value string) (glob, distance, weight int) {
	for i, text := range p.globs {
		wanted := elements(text)
		d := typo.Distance(wanted, value)
		if w := typo.Weight(d, wanted); i == 0 || w < weight {
			glob, distance, weight = i, d, w
		}
	}
	return glob, distance, weight
}

// correct returns the value of a key in which the glob matches a value of a device. If the glob
// does not have the number at the end of the value, the second result matches any number.
func (p pattern) correct(glob int, value string) (exact, anyNumber string) {
	text := elements(p.globs[glob])
	changed := typo.Correct(text, value)
	with := func(corrected string) string {
		globs := slices.Clone(p.globs)
		globs[glob] = corrected
		return strings.Join(globs, "|")
	}

	exact = with(write(changed))
	without := trimNumber(changed)
	if len(without) == len(changed) || slices.ContainsFunc(text, func(e typo.Element) bool { return e.Many }) {
		return exact, exact
	}
	return exact, with(write(without) + "*")
}

// write returns the glob of a correction.
func write(changed []typo.Corrected) string {
	var glob strings.Builder
	for _, c := range changed {
		switch {
		case c.Change == typo.Kept:
			glob.WriteString(c.Text)
		case strings.ContainsRune(`*?[\|`, c.Char) || unicode.IsControl(c.Char) || c.Char == unicode.ReplacementChar:
			glob.WriteByte('?') // not every one of them can be written
		default:
			glob.WriteRune(c.Char)
		}
	}
	return glob.String()
}

// trimNumber removes an inserted number at the end.
func trimNumber(changed []typo.Corrected) []typo.Corrected {
	end := len(changed)
	for end > 0 && changed[end-1].Change == typo.Inserted && unicode.IsDigit(changed[end-1].Char) {
		end--
	}
	return changed[:end]
}

// with returns the text of a match with == and another value.
func (m match) with(value string) string {
	text := m.key.word
	if m.key.named {
		text += "{" + m.name + "}"
	}
	return text + `=="` + strings.ReplaceAll(value, `"`, `\"`) + `"`
}

// Corrections returns the text of the rule with the corrected keys, the preferred text first. It is
// empty if the miss does not have all of them.
func (r Rule) Corrections(miss Miss) []string {
	preferred, exact := r.text, r.text
	for _, mismatch := range slices.Backward(miss.Missed) {
		if mismatch.Corrected == "" {
			return nil
		}
		start, end := mismatch.match.position, mismatch.match.position+len(mismatch.Key)
		preferred = preferred[:start] + mismatch.Corrected + preferred[end:]
		exact = exact[:start] + cmp.Or(mismatch.Exact, mismatch.Corrected) + exact[end:]
	}
	return slices.Compact([]string{preferred, exact})
}

// Of returns the text of the rule for devices of one subsystem. It returns false if the rule
// has a subsystem.
func (r Rule) Of(name string) (text string, ok bool) {
	if slices.ContainsFunc(r.own, func(m match) bool { return m.key.field == subsystem }) || strings.ContainsAny(name, `"*?[\|`) {
		return "", false
	}
	return r.text + `, SUBSYSTEM=="` + name + `"`, true
}
