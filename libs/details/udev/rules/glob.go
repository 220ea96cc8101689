package rules

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

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
