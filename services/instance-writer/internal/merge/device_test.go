package merge_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"akri.sh/services/instance-writer/internal/merge"
)

func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.MapOf(rapid.String(), rapid.String()).Draw(t, "values")
		require.Equal(t, values, merge.NewProperties(values).Map())
		require.Equal(t, merge.NewProperties(values), merge.NewProperties(merge.NewProperties(values).Map()))
	})
	require.Nil(t, merge.Properties{}.Map())
	require.Nil(t, merge.NewProperties(nil).Map())
}
