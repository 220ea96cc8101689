package explain

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The order of the causes of a link must not depend on the names of their files.
func TestRanksAreUnique(t *testing.T) {
	for link, registered := range rules {
		ranks := map[int]CauseID{}
		for _, r := range registered {
			require.Empty(t, ranks[r.rank], "%s: %s has the rank %d, too", link, r.id, r.rank)
			ranks[r.rank] = r.id
		}
	}
}
