package rules

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// pattern is what stands between the quotes of a match: globs, any of which may match.
type pattern struct {
	globs []string
	// trim says that white space at the end of an attribute does not count, as in udev.
	trim bool
}

func newPattern(value string) pattern {
	return pattern{
		globs: strings.Split(value, "|"),
		trim:  value == "" || !unicode.IsSpace(rune(value[len(value)-1])),
	}
}

// matches tells whether one of the alternatives matches the whole string.
func (p pattern) matches(s string) bool {
	return slices.ContainsFunc(p.globs, func(glob string) bool { return fnmatch(glob, s) })
}

// fnmatch is that of the C library without flags, which is what udev uses: `*` and `?` match `/` too, and a `[` that is
// never closed stands for itself. A star is retried from the last one only, so the time is bounded by the product of
// the lengths.
func fnmatch(glob, s string) bool {
	starGlob, starRest, starred := "", "", false
	for s != "" || glob != "" {
		if strings.HasPrefix(glob, "*") {
			glob = glob[1:]
			starGlob, starRest, starred = glob, s, true
			continue
		}
		if rest, ok := step(glob, s); ok {
			_, width := utf8.DecodeRuneInString(s)
			glob, s = rest, s[width:]
			continue
		}
		if !starred || starRest == "" {
			return false
		}
		_, width := utf8.DecodeRuneInString(starRest)
		starRest = starRest[width:]
		glob, s = starGlob, starRest
	}
	return true
}

// step matches the first element of the glob, which is not a star, with the first character of s, and returns what
// follows the element.
func step(glob, s string) (rest string, ok bool) {
	if glob == "" || s == "" {
		return "", false
	}
	char, _ := utf8.DecodeRuneInString(s)
	want, width := utf8.DecodeRuneInString(glob)
	switch want {
	case '?':
		return glob[1:], true
	case '[':
		if set, rest, closed := bracket(glob[1:]); closed {
			return rest, set.contains(char)
		}
	case '\\':
		if len(glob) > 1 {
			want, width = utf8.DecodeRuneInString(glob[1:])
			width++
		}
	}
	return glob[width:], want == char
}
