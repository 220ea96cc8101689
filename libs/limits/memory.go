package limits

import (
	"math"
	"runtime/debug"
	"runtime/metrics"
)

// memoryPercent is the part of the memory limit above which new nodes are refused. The rest is for
// garbage: without it the collector would run all the time.
const memoryPercent = 85

// Memory is the use of memory of this process in bytes.
type Memory struct {
	// Used is what a garbage collection cannot free.
	Used uint64
	// Limit is Go's memory limit, or 0 if there is none.
	Limit uint64
}

// ReadMemory returns the use of memory. Live objects are those of the last garbage collection,
// which are frequent near the limit.
func ReadMemory() Memory {
	samples := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"}, // with garbage
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
	}
	metrics.Read(samples)
	value := func(i int) uint64 { return samples[i].Value.Uint64() }
	memory := Memory{Used: value(0) + min(value(1), value(2)) - value(2) - value(3) - value(4)}
	if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
		memory.Limit = uint64(limit)
	}
	return memory
}

// Exhausted reports whether new nodes must be refused.
func (m Memory) Exhausted() bool { return m.Limit > 0 && m.Used > m.Limit/100*memoryPercent }
