package details_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"akri.sh/libs/details"
)

func TestReplace(t *testing.T) {
	for _, test := range []struct {
		text, value string
		path        []any
		want        string
	}{
		{"udevRules:\n- KERNEL==\"a\"\n- 'b'\n", `KERNEL=="c"`, []any{"udevRules", 0}, "udevRules:\n- KERNEL==\"c\"\n- 'b'\n"},
		{"udevRules: ['KERNEL==\"a\"']\n", `KERNEL=="c'd"`, []any{"udevRules", 0}, "udevRules: ['KERNEL==\"c''d\"']\n"},
		{"udevRules: [\"KERNEL==\\\"a\\\"\"]\n", `KERNEL=="c"`, []any{"udevRules", 0}, "udevRules: [\"KERNEL==\\\"c\\\"\"]\n"},
		{"# cameras\nudevRules:\n# the front door\n- a # now\n", "b", []any{"udevRules", 0}, "# cameras\nudevRules:\n# the front door\n- b # now\n"},
		{"names: {items: [a]}\n", "null", []any{"names", "items", 0}, "names: {items: [\"null\"]}\n"}, // not absent
		{"names: {items: [a]}\n", "a: #b", []any{"names", "items", 0}, "names: {items: ['a: #b']}\n"},
		{"a: &x one\nb: *x\n", "two", []any{"b"}, "a: &x one\nb: two\n"},
		{"a: |\n  one\n", "two", []any{"a"}, "a: two\n"},
	} {
		got, err := details.Replace(test.text, test.value, test.path...)
		require.NoError(t, err, test.text)
		require.Equal(t, test.want, got)
	}
	for _, path := range [][]any{{"b"}, {"a", 2}, {"a"}, {"a", "x"}, {0}, {"a", 0, 0}} {
		_, err := details.Replace("a: [b]", "c", path...)
		require.Error(t, err, path)
	}
	_, err := details.Replace("[", "c", 0)
	require.ErrorContains(t, err, "replace a string of the details")
}

// Every text can be replaced, and nothing else changes.
func TestReplaceAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts := rapid.SliceOfN(rapid.StringMatching(`[ -~é]{0,12}`), 1, 4).Draw(t, "texts")
		encoded, err := yaml.Marshal(map[string]any{"list": texts, "other": true})
		require.NoError(t, err)
		i := rapid.IntRange(0, len(texts)-1).Draw(t, "index")
		texts[i] = rapid.StringMatching(`[ -~é]{0,12}`).Draw(t, "value")
		got, err := details.Replace(string(encoded), texts[i], "list", i)
		require.NoError(t, err)
		var decoded struct {
			List  []string `yaml:"list"`
			Other bool     `yaml:"other"`
		}
		require.NoError(t, yaml.Unmarshal([]byte(got), &decoded))
		require.Equal(t, texts, decoded.List)
		require.True(t, decoded.Other)
	})
}
