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
