package v0_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

func TestEscape(t *testing.T) {
	for text, escaped := range map[string]string{
		"":                     "",
		"camera 1\t\n":         "camera 1\t\n",
		"Kamera für Tür 3 – 東": "Kamera für Tür 3 – 東",
		"\x1b[2J\x1b]0;x\a":    `\u001b[2J\u001b]0;x\u0007`,
		"a\rb\u009b1m\x7f":     `a\u000db\u009b1m\u007f`,
		"a\u202eb\u2066":       `a\u202eb\u2066`,
		"a\xffb":               "a\uFFFDb",
	} {
		require.Equal(t, escaped, akriv0.Escape(text))
		require.Equal(t, escaped == text, akriv0.IsText(text), "%q", text)
	}
}

// The result has no characters that control a terminal, and escaping it again changes nothing. JSON
// that is escaped keeps its meaning.
func FuzzEscape(f *testing.F) {
	for _, seed := range []string{"x", "\x1b[31m", "a\u009b", "\u202e", "\xff", `\u001b`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		escaped := akriv0.Escape(text)
		require.True(t, utf8.ValidString(escaped))
		require.False(t, strings.ContainsFunc(escaped, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }))
		require.Equal(t, escaped, akriv0.Escape(escaped))
		require.True(t, akriv0.IsText(escaped))

		encoded, err := json.Marshal(text)
		require.NoError(t, err)
		var decoded, decodedEscaped string
		require.NoError(t, json.Unmarshal(encoded, &decoded))
		require.NoError(t, json.Unmarshal([]byte(akriv0.Escape(string(encoded))), &decodedEscaped))
		require.Equal(t, decoded, decodedEscaped)
	})
}
