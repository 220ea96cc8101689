package soak

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// samples returns an hour of samples with noise, one each minute.
func samples(start, slope, noise float64) (points []point) {
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 60 {
		hours := float64(i) / 60
		points = append(points, point{hours, start + slope*hours + noise*random.NormFloat64()})
	}
	return points
}

func TestFit(t *testing.T) {
	l := fit(samples(10, 3, 0))
	require.InDelta(t, 3, l.slope, 1e-9)
	require.InDelta(t, 10+3*59.0/120, l.mean, 1e-9)
	l = fit(samples(10, 3, 0.5))
	require.InDelta(t, 3, l.slope, 1)
	require.Greater(t, l.t, 4.0)
	require.Zero(t, fit(nil).slope)
	require.Zero(t, fit([]point{{1, 1}, {1, 2}, {1, 3}}).slope)
}

func TestGrows(t *testing.T) {
	for name, c := range map[string]struct {
		points []point
		grows  bool
	}{
		"constant":               {samples(10, 0, 0), false},
		"noise":                  {samples(10, 0, 1), false},
		"leak":                   {samples(10, 3, 0.5), true},
		"leak without noise":     {samples(10, 3, 0), true},
		"below the limit":        {samples(10, 0.5, 0), false},
		"small part of the mean": {samples(100, 2, 0), false},
		"short run":              {samples(100, 12, 0)[:20], false},
		"shrinks":                {samples(10, -3, 0.5), false},
		"too few points":         {samples(10, 3, 0)[:minPoints-1], false},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.grows, fit(c.points).grows(limit{perHour: 1, share: 0.05}))
		})
	}
}

func TestTable(t *testing.T) {
	m := newMeasurements()
	for _, p := range samples(10, 30, 0.1) {
		// The second process has fewer points, so it has no row.
		for process, value := range map[string]float64{"1": p.value, "2": 1000} {
			if process == "1" || p.hours > 0.5 {
				m.add(memory, "registrar on node-a", process, value, true)
				key := memory + "\x00registrar on node-a\x00" + process
				m.phase[key][0].hours = p.hours
			}
		}
		m.add(events, "events", "", 100*p.hours, true)
		m.endPhase()
	}
	var out bytes.Buffer
	err := m.print(&out, 0.25)
	require.ErrorContains(t, err, "private memory (MiB) of registrar on node-a grows by")
	require.NotContains(t, err.Error(), "Events")
	require.Regexp(t, `\| private memory \(MiB\) \| registrar on node-a \| 17\.\d+ \| 39\.\d+ \| 39\.\d+ \| \+(29|30)\.\d+ \| \d+\.\d \| 45 \|`, out.String())
}
