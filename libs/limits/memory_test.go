package limits_test

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/limits"
)

// Garbage does not count, because a collection frees it.
func TestMemory(t *testing.T) {
	const block = 64 << 20
	limit := debug.SetMemoryLimit(math.MaxInt64)
	t.Cleanup(func() { debug.SetMemoryLimit(limit) })
	runtime.GC()
	before := limits.ReadMemory()
	require.False(t, before.Exhausted(), "there is no limit")

	debug.SetMemoryLimit(int64(before.Used) + block)
	require.False(t, limits.ReadMemory().Exhausted())
	live := make([]byte, block)
	runtime.GC()
	require.True(t, limits.ReadMemory().Exhausted())
	require.InDelta(t, before.Used+block, limits.ReadMemory().Used, block/8)
	runtime.KeepAlive(live)
	runtime.GC()
	require.False(t, limits.ReadMemory().Exhausted())

	debug.SetGCPercent(-1)
	t.Cleanup(func() { debug.SetGCPercent(100) })
	garbage := make([]byte, block/2)
	runtime.KeepAlive(garbage)
	require.InDelta(t, before.Used, limits.ReadMemory().Used, block/8)
}
