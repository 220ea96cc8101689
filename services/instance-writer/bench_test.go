package instancewriter_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// timed runs f many times, followed by after, and reports the median and 99th percentile of the
// duration of f.
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

// BenchmarkReportToInstance measures the time from a report with a new device to its answer, when
// the API server holds the Instance.
func BenchmarkReportToInstance(b *testing.B) {
	f := newFixture(b, 1, 1)
	s := openReports(b, start(b, grace))
	node := f.nodes[0]
	s.send(f.newReport(node))
	timed(b, func(i int) {
		s.send(f.newReport(node, f.device(node, fmt.Sprintf("d%d", i), false)))
	}, func() {})
}

// BenchmarkReserve measures the reservation of a slot of an Instance that several nodes share.
func BenchmarkReserve(b *testing.B) {
	for _, nodes := range []int{1, 100, 250} {
		b.Run(fmt.Sprintf("%d-nodes", nodes), func(b *testing.B) {
			f := newFixture(b, 10, nodes)
			r := start(b, grace)
			f.reportShared("foo", r)
			claims := []*instancev1.SlotClaim{claim(f.instanceName("foo"), 0)}
			timed(b,
				func(int) { require.NoError(b, reserve(r, f.nodes[0], claims...)) },
				func() { require.NoError(b, release(r, f.nodes[0], claims...)) })
		})
	}
}

// BenchmarkThousandSharedDevices measures the time until ten nodes that report the same thousand
// devices at once are listed in every Instance.
func BenchmarkThousandSharedDevices(b *testing.B) {
	f := newFixture(b, 1, 10)
	r := start(b, grace)
	var streams []*stream
	for range f.nodes {
		streams = append(streams, openReports(b, r))
	}
	for b.Loop() {
		var devices []*discoveryv1.Device
		for i := range 1000 {
			devices = append(devices, f.device("", fmt.Sprintf("d%d", i), true))
		}
		done := make(chan struct{})
		for i, s := range streams {
			go func() { s.send(f.newReport(f.nodes[i], devices...)); done <- struct{}{} }()
		}
		for range streams {
			<-done
		}
		b.StopTimer()
		for _, node := range f.nodes {
			require.Equal(b, f.nodes, f.get(f.instanceName("d7")).Spec.Nodes, node)
		}
		for i, s := range streams {
			s.send(f.newReport(f.nodes[i]))
		}
		b.StartTimer()
	}
}
