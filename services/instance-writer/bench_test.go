package instancewriter_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	instancev1 "akri.sh/proto/akri/instance/v1"
)

// timed runs f many times, `after` untimed after each, and adds the median and 99th percentile of f
// to the result.
func timed(b *testing.B, f func(i int), after func()) {
	b.Helper()
	took := make([]time.Duration, 0, b.N)
	for i := 0; b.Loop(); i++ {
		start := time.Now()
		f(i)
		took = append(took, time.Since(start))
		after()
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}

// BenchmarkReportToInstance: from a report with a device more to the answer, when the API server
// holds the Instance.
func BenchmarkReportToInstance(b *testing.B) {
	w := newWorld(b, 1, 1)
	s := open(b, start(b, grace))
	node := w.nodes[0]
	s.tell(w.report(node))
	timed(b, func(i int) {
		s.tell(w.report(node, w.device(node, fmt.Sprintf("d%d", i), false)))
	}, func() {})
}

// BenchmarkReserve: one slot reserved and given back, in an Instance that as many nodes share.
func BenchmarkReserve(b *testing.B) {
	for _, nodes := range []int{1, 100, 250} {
		b.Run(fmt.Sprintf("%d-nodes", nodes), func(b *testing.B) {
			w := newWorld(b, 10, nodes)
			r := start(b, grace)
			w.see("foo", r)
			claims := []*instancev1.SlotClaim{claim(w.shared("foo"), 0)}
			release := func() {
				_, err := r.client.ReleaseSlots(context.Background(), &instancev1.ReleaseSlotsRequest{Node: w.nodes[0], Claims: claims})
				require.NoError(b, err)
			}
			timed(b, func(int) {
				require.NoError(b, reserve(r, w.nodes[0], claims...))
			}, release)
		})
	}
}

// BenchmarkThousandSharedDevices: ten nodes report the same thousand devices at once, until every
// Instance lists all.
func BenchmarkThousandSharedDevices(b *testing.B) {
	w := newWorld(b, 1, 10)
	r := start(b, grace)
	var streams []*stream
	for range w.nodes {
		streams = append(streams, open(b, r))
	}
	for b.Loop() {
		var devices []*instancev1.Device
		for i := range 1000 {
			devices = append(devices, w.device("", fmt.Sprintf("d%d", i), true))
		}
		done := make(chan struct{})
		for i, s := range streams {
			go func() { s.tell(w.report(w.nodes[i], devices...)); done <- struct{}{} }()
		}
		for range streams {
			<-done
		}
		b.StopTimer()
		for _, node := range w.nodes {
			require.Equal(b, w.nodes, w.get(w.shared("d7")).Spec.Nodes, node)
		}
		for i, s := range streams {
			s.tell(w.report(w.nodes[i]))
		}
		b.StartTimer()
	}
}
