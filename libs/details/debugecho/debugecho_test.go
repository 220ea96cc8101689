package debugecho_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/details/debugecho"
)

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"descriptions: [foo, bar, foo]", "descriptions: []", "descriptions: [1, ~, {}]", "descriptions: &a [*a]", "{"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		d, err := debugecho.Parse(text)
		if err != nil {
			return
		}
		require.NotContains(t, d.Descriptions, "")
		require.True(t, slices.IsSorted(d.Descriptions))
		require.Equal(t, slices.Compact(slices.Clone(d.Descriptions)), d.Descriptions)
	})
}
