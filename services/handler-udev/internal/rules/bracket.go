package rules

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// set is what stands between brackets.
type set struct {
	negated bool
	ranges  [][2]rune
	classes []func(rune) bool
}

func (s set) contains(char rune) bool {
	found := false
	for _, r := range s.ranges {
		found = found || r[0] <= char && char <= r[1]
	}
	for _, class := range s.classes {
		found = found || class(char)
	}
	return found != s.negated
}

// bracket reads a set after its `[`. A `]` that comes first belongs to the set.
func bracket(glob string) (s set, rest string, closed bool) {
	if strings.HasPrefix(glob, "!") || strings.HasPrefix(glob, "^") {
		s.negated = true
		glob = glob[1:]
	}
	for first := true; glob != ""; first = false {
		if glob[0] == ']' && !first {
			return s, glob[1:], true
		}
		if class, rest, ok := class(glob); ok {
			s.classes = append(s.classes, class)
			glob = rest
			continue
		}
		var low, high rune
		low, glob = char(glob)
		high = low
		if len(glob) > 1 && glob[0] == '-' && glob[1] != ']' {
			high, glob = char(glob[1:])
		}
		s.ranges = append(s.ranges, [2]rune{low, high})
	}
	return set{}, "", false
}

// char takes one character, which a backslash may precede.
func char(glob string) (rune, string) {
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

// class reads a named class such as `[:digit:]`.
func class(glob string) (is func(rune) bool, rest string, ok bool) {
	inside, found := strings.CutPrefix(glob, "[:")
	if !found {
		return nil, "", false
	}
	name, rest, found := strings.Cut(inside, ":]")
	is, known := classes[name]
	return is, rest, found && known
}
