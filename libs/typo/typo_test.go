package typo_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"akri.sh/libs/typo"
)

// glob returns the elements of a text in which * and ? are wildcards.
func glob(text string) []typo.Element {
	elements := typo.Literal(text)
	for i := range elements {
		switch elements[i].Char {
		case '*':
			elements[i].Many = true
		case '?':
			elements[i].Any = func(rune) bool { return true }
		}
	}
	return elements
}

// corrected returns the text of a correction.
func corrected(text []typo.Element, value string) string {
	var result string
	for _, c := range typo.Correct(text, value) {
		if c.Change == typo.Kept {
			result += c.Text
		} else {
			result += string(c.Char)
		}
	}
	return result
}

func TestCorrect(t *testing.T) {
	for _, test := range []struct {
		text, value string
		distance    int
		corrected   string
		similar     bool
	}{
		{"zram0", "zram0", 0, "zram0", true},
		{"zrm0", "zram0", 1, "zram0", true},    // a missing character
		{"zrram0", "zram0", 1, "zram0", true},  // one too many
		{"zrom0", "zram0", 1, "zram0", true},   // another one
		{"zarm0", "zram0", 1, "zram0", true},   // swapped
		{"ZRAM0", "zram0", 1, "zram0", true},   // case
		{"Zrm0", "zram0", 1, "zram0", true},    // case, and a missing character
		{"größe", "grösse", 2, "grösse", true}, // characters are not bytes
		{"", "a", 1, "a", false},
		{"a", "", 1, "", false},
		{"none", "zram0", 5, "zram0", false},

		{"zram*", "zram0", 0, "zram*", true},
		{"zrm*", "zram0", 1, "zram*", true}, // not zra*, which would match more
		{"zrm*", "loop0", 3, "loo*", false},
		{"zram*", "random", 2, "ran*", false},
		{"zarm0", "zam1", 2, "zam1", true},
		{"66-77-88-99-AA-BB", "66:77:88:99:aa:bb", 5, "66:77:88:99:aa:bb", true},
		{"/a/long/path/to/radar", "/a/long/path/of/a/yard", 6, "/a/long/path/of/a/yard", false},
		{"*am1", "zram0", 1, "*am0", true},
		{"vidoe?", "video0", 1, "video?", true},
		{"ttyX*", "ttyS0", 1, "ttyS*", true},
		{"x*", "", 1, "*", false},
		{"*", "anything", 0, "*", true},
		{"a*c*e", "aXcYf", 1, "a*c*f", true},
	} {
		text := glob(test.text)
		require.Equal(t, test.distance, typo.Distance(text, test.value), "%s, %s", test.text, test.value)
		require.Equal(t, test.corrected, corrected(text, test.value), "%s, %s", test.text, test.value)
		require.Equal(t, test.similar, typo.Similar(test.distance, text), "%s, %s", test.text, test.value)
	}
}

func TestWildcardOfSomeCharacters(t *testing.T) {
	text := append(typo.Literal("video"), typo.Element{Text: "[1-9]", Any: func(r rune) bool { return r >= '1' && r <= '9' }})
	require.Equal(t, "video[1-9]", corrected(text, "video7"))
	require.Equal(t, "video0", corrected(text, "video0"))
	require.Equal(t, 1, typo.Distance(text, "video0"))
}

func TestLongTexts(t *testing.T) {
	long := string(make([]byte, 300))
	require.Equal(t, 300, typo.Distance(typo.Literal("a"), long))
	require.Equal(t, 300, typo.Distance(typo.Literal(long), "a"))
	require.Nil(t, typo.Correct(typo.Literal(long), "a"))
}

func TestNearest(t *testing.T) {
	text, value := typo.Nearest([]string{"x", "front-dor"}, []string{"video", "front-door"})
	require.Equal(t, []int{1, 1}, []int{text, value})
	text, value = typo.Nearest([]string{"x"}, nil)
	require.Equal(t, []int{-1, -1}, []int{text, value})
}

func TestWeight(t *testing.T) {
	text := glob("zram*")
	require.Equal(t, 1, typo.Weight(1, text))
	require.Greater(t, typo.Weight(2, text), typo.Far)
	require.Greater(t, typo.Weight(3, text), typo.Weight(2, text))
	require.Less(t, typo.Weight(1000, text), typo.Absent)
}

// A corrected text matches the value, and has no more changes than the distance.
func TestCorrectionMatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := glob(rapid.StringMatching(`[abA*?]{0,8}`).Draw(t, "text"))
		value := rapid.StringMatching(`[abAc]{0,8}`).Draw(t, "value")
		result := glob(corrected(text, value))
		require.Zero(t, typo.Distance(result, value), "%s", corrected(text, value))

		distance := typo.Distance(text, value)
		require.LessOrEqual(t, distance, max(len(text), len(value)))
		require.Equal(t, distance == 0, corrected(text, value) == textOf(text))
	})
}

// A text is as many characters away as were changed, or fewer.
func TestDistanceOfEdits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.StringMatching(`[a-z]{2,8}[0-9]{1,2}`).Draw(t, "value")
		edits := rapid.IntRange(0, 3).Draw(t, "edits")
		text := []rune(value)
		for range edits {
			i := rapid.IntRange(0, len(text)-1).Draw(t, "position")
			switch char := rapid.RuneFrom([]rune("abxyz019")).Draw(t, "character"); rapid.IntRange(0, 2).Draw(t, "edit") {
			case 0:
				text[i] = char
			case 1:
				text = append(text[:i], append([]rune{char}, text[i:]...)...)
			default:
				text = append(append([]rune{}, text[:i]...), text[min(i+1, len(text)):]...)
			}
			if len(text) == 0 {
				return
			}
		}
		require.LessOrEqual(t, typo.Distance(typo.Literal(string(text)), value), edits)
	})
}

func textOf(elements []typo.Element) (text string) {
	for _, e := range elements {
		text += e.Text
	}
	return text
}
