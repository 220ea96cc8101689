package rules

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

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
