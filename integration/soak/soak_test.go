package soak_test

import (
	"cmp"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/integration/soak"
)

// TestSoak is a short soak. It checks the invariants; slopes of a minute mean nothing. AKRI_SOAK
// sets the duration, AKRI_SOAK_SEED repeats the changes of a run, AKRI_SOAK_DIR is the directory of
// the cluster. The logs stay in a directory beside it.
func TestSoak(t *testing.T) {
	duration, err := time.ParseDuration(cmp.Or(os.Getenv("AKRI_SOAK"), "60s"))
	require.NoError(t, err, "AKRI_SOAK")
	seed := rand.Uint64()
	if text := os.Getenv("AKRI_SOAK_SEED"); text != "" {
		seed, err = strconv.ParseUint(text, 10, 64)
		require.NoError(t, err)
	}
	dir := cmp.Or(os.Getenv("AKRI_SOAK_DIR"), "/tmp/akri-soak-test")
	t.Logf("AKRI_SOAK_SEED=%d", seed)
	require.NoError(t, soak.Run(t.Context(), soak.Options{
		Dir: dir, Logs: dir + "-logs", Images: os.Getenv("AKRI_IMAGES"),
		Duration: duration, Churn: 25 * time.Second, Settle: 3 * time.Minute,
		Nodes: []string{"node-a", "node-b"}, Seed: seed, Out: t.Output(), Progress: t.Output(),
	}))
}
