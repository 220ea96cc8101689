package slots //nolint:testpackage // what keeps a Keeper busy is its own

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/services/device-plugin-host/internal/node"
)

func TestTheKubeletDoesNotWaitLongerWhileSlotsAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keeper := NewKeeper(nil, nil, "node", zap.NewNop())
		require.True(t, keeper.begin(t.Context()))
		began := time.Now()
		err := keeper.Reserve(t.Context(), []node.Claim{{Namespace: "default", Instance: "a", Index: 1}})
		require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
		require.ErrorContains(t, err, "busy with slots to be released")
		require.Equal(t, reserveTimeout, time.Since(began))
	})
}
