package details_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/details"
)

type lamps struct {
	Colors []string `yaml:"colors"`
	Bright bool     `yaml:"bright"`
}

func TestDecodeIsStrict(t *testing.T) {
	for name, test := range map[string]struct {
		details string
		want    lamps
		err     []string
	}{
		"complete":       {details: "colors: [red]\nbright: true", want: lamps{Colors: []string{"red"}, Bright: true}},
		"json":           {details: `{"colors": ["red"]}`, want: lamps{Colors: []string{"red"}}},
		"empty":          {details: ""},
		"only a comment": {details: "# later"},
		"unknown keys":   {details: "colours: [red]\nbrite: true", err: []string{`line 1: unknown key "colours"`, `line 2: unknown key "brite"`}},
		"wrong type":     {details: "bright: [1]", err: []string{"line 1", "bool"}},
		"duplicate key":  {details: "bright: true\nbright: false", err: []string{"line 2", "bright", "already defined"}},
		"not yaml":       {details: "colors: [", err: []string{"line 1"}},
		"two documents":  {details: "bright: true\n---\nbright: false", err: []string{"must be one YAML document"}},
		"not a mapping":  {details: "hello", err: []string{"line 1"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got lamps
			err := details.Decode(test.details, &got)
			if test.err == nil {
				require.NoError(t, err)
				require.Equal(t, test.want, got)
			}
			for _, part := range test.err {
				require.ErrorContains(t, err, part)
			}
		})
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"colors: [red]", "{", "&a [*a]", "bright: !!binary x", "? [a]: b", "<<: *x"} {
		f.Add(seed)
	}
	f.Fuzz(func(_ *testing.T, text string) {
		var into lamps
		_ = details.Decode(text, &into)
	})
}
