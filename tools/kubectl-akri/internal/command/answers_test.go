package command

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/trial"
)

// A page that is made many times asks the nodes once a minute, and again for other details.
func TestAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		a := &answers{last: map[question]answer{}, ask: func(ctx context.Context, _ *explain.Snapshot, c *akriv0.Configuration) []trial.Group {
			require.NoError(t, ctx.Err())
			asked++
			if c.Spec.DiscoveryHandler.DiscoveryDetails == "none" {
				return nil
			}
			return []trial.Group{{Kind: c.Spec.DiscoveryHandler.DiscoveryDetails}}
		}}
		closest := func(details string) []trial.Group {
			c := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "camera"}}
			c.Spec.DiscoveryHandler.DiscoveryDetails = details
			closed, cancel := context.WithCancel(t.Context())
			cancel()
			return a.closest(closed, nil, c)
		}

		for range 3 {
			require.Equal(t, "one", closest("one")[0].Kind)
		}
		require.Equal(t, 1, asked)
		require.Equal(t, "two", closest("two")[0].Kind)
		require.Equal(t, 2, asked)
		<-time.After(answerAge)
		require.Equal(t, "one", closest("one")[0].Kind)
		require.Equal(t, 3, asked)
		require.Len(t, a.last, 1)

		for range 3 {
			require.Empty(t, closest("none"))
		}
		require.Equal(t, 4, asked)
		<-time.After(emptyAge)
		require.Empty(t, closest("none"))
		require.Equal(t, 5, asked)
	})
}
