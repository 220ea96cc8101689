package slots //nolint:testpackage // holds the unexported semaphore of a Manager

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/libs/node"
)

func TestReserveTimesOutDuringRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		manager := NewManager(nil, nil)
		require.True(t, manager.operation.TryAcquire(1))
		started := time.Now()
		err := manager.Reserve(t.Context(), []node.SlotClaim{{Namespace: "default", Instance: "a", Index: 1}})
		require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
		require.ErrorContains(t, err, "another reservation or release was in progress")
		require.Equal(t, reserveTimeout, time.Since(started))
	})
}
