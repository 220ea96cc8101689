package instancewriter_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

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

// BenchmarkReserveWithIdentity compares reservations in plain text and with TLS and a token. They
// alternate, so that both see the same load of the machine.
func BenchmarkReserveWithIdentity(b *testing.B) {
	f := newFixture(b, 10, 1)
	node := f.nodes[0]
	plain, secured := start(b, grace), startSecured(b, api.Config().Host, slow)
	f.reportShared("foo", plain)
	request := &instancev1.ReserveSlotsRequest{Node: node, Claims: []*instancev1.SlotClaim{claim(f.instanceName("foo"), 0)}}
	clients := map[string]instancev1.InstanceServiceClient{
		"plain": plain.client, "secured": secured.client(token(b, namespace, agent, node, audience)),
	}
	took := map[string][]time.Duration{}
	for b.Loop() {
		for name, client := range clients {
			began := time.Now()
			_, err := client.ReserveSlots(b.Context(), request)
			took[name] = append(took[name], time.Since(began))
			require.NoError(b, err)
			require.NoError(b, release(plain, node, request.GetClaims()...))
		}
	}
	for name, times := range took {
		slices.Sort(times)
		b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, name+"-p50-ms")
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
		var devices []*instancev1.Device
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

// BenchmarkThousandNodesConnect measures the time until the two services of 1,000 nodes have
// connected to a replica that has just started and does not know their tokens.
func BenchmarkThousandNodesConnect(b *testing.B) {
	const nodes = 1000
	f := newFixture(b, 1, nodes)
	tokens := make([]string, 2*nodes)
	var creating errgroup.Group
	creating.SetLimit(20)
	for i := range tokens {
		creating.Go(func() error {
			tokens[i] = token(b, namespace, agent, f.nodes[i/2], audience)
			return nil
		})
	}
	require.NoError(b, creating.Wait())
	var took []time.Duration
	for range b.N {
		r := startSecured(b, api.Config().Host, slow)
		began := time.Now()
		var connecting errgroup.Group
		for i, token := range tokens {
			address := fmt.Sprintf("127.1.%d.%d", i/250, i%250+1)
			client := instancev1.NewInstanceServiceClient(r.dial(token, from(address)))
			connecting.Go(func() error {
				watch, err := client.WatchInstances(b.Context(), &instancev1.WatchInstancesRequest{Node: f.nodes[i/2]}, grpc.WaitForReady(true))
				if err == nil {
					_, err = watch.Recv()
				}
				return err
			})
		}
		require.NoError(b, connecting.Wait())
		took = append(took, time.Since(began))
	}
	b.ReportMetric(slices.Max(took).Seconds(), "s-to-serve-all")
}
