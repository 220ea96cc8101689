package instancewriter_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/kubernetes"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/listentest"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// memoryLimit is less than the limit of the container in the chart.
const memoryLimit = 256 << 20

// startSecuredProcess starts an instance-writer with TLS in its own process, with the memory
// settings that the chart has for the limit. peak returns the most memory that it had.
func startSecuredProcess(t testing.TB, memoryLimit int) (r *securedReplica, peak func() int) {
	t.Helper()
	client, err := kubernetes.NewForConfig(api.Config())
	require.NoError(t, err)
	r = &securedReplica{TB: t, kubernetes: client, address: listentest.Address(t), ca: filepath.Join(t.TempDir(), "ca.crt")}
	name := createCA(t)
	command := exec.CommandContext(t.Context(), build(t), "--address", r.address, "--admin-address=", "--namespace", namespace,
		"--tls-name", name, "--kubeconfig", kubeconfig(t, api.Config().Host), "--log-level=error")
	command.Env = append(os.Environ(), "GOMEMLIMIT="+strconv.Itoa(memoryLimit))
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, command.Start())
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	r.awaitCA(name)
	return r, func() int {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", command.Process.Pid))
		require.NoError(t, err)
		kilobytes, err := strconv.Atoi(regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindStringSubmatch(string(text))[1])
		require.NoError(t, err)
		return kilobytes << 10
	}
}

// A node opens connections, opens streams and sends large messages as fast as it can. Another node
// is served, and memory stays below the limit.
func TestFloodOfOneNode(t *testing.T) {
	f := newFixture(t, 2, 2)
	r, peak := startSecuredProcess(t, memoryLimit)
	call, flooder := f.reserver(r), token(t, namespace, agent, f.nodes[0], audience)
	large := f.newReport(f.nodes[0], f.device("", strings.Repeat("x", 64<<20), true))
	requireTooLarge(t, t.Context(), r.client(flooder), large)
	// 2 MiB, and 100 MiB in memory if it were decoded.
	many := f.newReport(f.nodes[0])
	many.Handlers = slices.Repeat([]*instancev1.HandlerState{{}}, 1<<20)
	stream, err := r.client(flooder).ReportDevices(t.Context())
	require.NoError(t, err)
	require.NoError(t, stream.Send(many))
	_, err = stream.Recv()
	require.ErrorContains(t, err, "a message ReportDevicesRequest must have at most 100000 values")
	var refused atomic.Int64
	stop := f.flood(r, flooder, &refused)
	defer stop()
	for calls := 0; calls < 20 || refused.Load() < 500; calls++ {
		require.NoError(t, call())
	}
	require.Less(t, peak(), memoryLimit)
	t.Logf("%d MiB at most, %d streams refused", peak()>>20, refused.Load())
}

// BenchmarkReserveDuringFlood compares reservations of a node without and during a flood of another
// node. They alternate, so that both see the same load of the machine. The flood has a process of
// its own with a low priority, because the node that floods does not share the CPUs of the server.
func BenchmarkReserveDuringFlood(b *testing.B) {
	f := newFixture(b, 2, 2)
	r, _ := startSecuredProcess(b, memoryLimit)
	call := f.reserver(r)
	flood := strings.Join([]string{r.address, r.ca, token(b, namespace, agent, f.nodes[0], audience), f.nodes[0]}, " ")
	took := map[string][]time.Duration{}
	for b.Loop() {
		took["without"] = append(took["without"], timesOf(b, 100, call)...)
		command := exec.CommandContext(b.Context(), "nice", "-n", "19", os.Args[0], "-test.run=^TestFlooder$")
		command.Env = append(os.Environ(), floodVariable+"="+flood)
		command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		output, err := command.StdoutPipe()
		require.NoError(b, err)
		require.NoError(b, command.Start())
		_, err = output.Read(make([]byte, 1)) // it has opened all connections
		require.NoError(b, err)
		took["during"] = append(took["during"], timesOf(b, 100, call)...)
		require.NoError(b, command.Process.Kill())
		_ = command.Wait()
	}
	for name, times := range took {
		slices.Sort(times)
		b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, name+"-p50-ms")
	}
}

// floodVariable has the arguments of TestFlooder.
const floodVariable = "AKRI_FLOOD"

// TestFlooder is the process that floods for BenchmarkReserveDuringFlood. It runs until it is
// killed.
func TestFlooder(t *testing.T) {
	arguments := strings.Fields(os.Getenv(floodVariable))
	if len(arguments) == 0 {
		t.Skip("it is a part of BenchmarkReserveDuringFlood")
	}
	f := &fixture{TB: t, nodes: arguments[3:], configuration: &akriv0.Configuration{}}
	f.configuration.Namespace, f.configuration.UID = namespace, "absent"
	r := &securedReplica{TB: t, address: arguments[0], ca: arguments[1]}
	for {
		stop := f.flood(r, arguments[2], new(atomic.Int64))
		fmt.Println("flooding")
		stop()
	}
}

// reserver returns a call that reserves a slot for the second node.
func (f *fixture) reserver(r *securedReplica) (call func() error) {
	f.Helper()
	client := instancev1.NewInstanceServiceClient(r.dial(token(f, namespace, agent, f.nodes[1], audience), from("127.0.0.2")))
	reports, err := client.ReportDevices(f.Context())
	require.NoError(f, err)
	require.NoError(f, reports.Send(f.newReport(f.nodes[1], f.device("", "foo", true))))
	_, err = reports.Recv()
	require.NoError(f, err)
	request := &instancev1.ReserveSlotsRequest{Node: f.nodes[1], Claims: []*instancev1.SlotClaim{claim(f.instanceName("foo"), 0)}}
	return func() error {
		_, err := client.ReserveSlots(f.Context(), request)
		return err
	}
}

// timesOf returns how long each of some calls takes.
func timesOf(t testing.TB, calls int, call func() error) (times []time.Duration) {
	t.Helper()
	for range calls {
		began := time.Now()
		require.NoError(t, call())
		times = append(times, time.Since(began))
	}
	return times
}

// flood opens connections and streams with the token of the first node and sends reports until stop
// is called.
func (f *fixture) flood(r *securedReplica, token string, refused *atomic.Int64) (stop func()) {
	f.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	var running sync.WaitGroup
	// As large as allowed. Their Configuration does not exist, so each waits for it.
	large := f.newReport(f.nodes[0], f.device("", strings.Repeat("x", 3<<20), true))
	large.Configuration = "absent"
	for range 4 {
		conn := r.dial(token)
		client := instancev1.NewInstanceServiceClient(conn)
		for i := range 2500 {
			report := f.newReport(f.nodes[0])
			report.Configuration = fmt.Sprintf("absent-%d", i)
			if i%100 == 0 { // encoding a large report for each stream would be most of the test's time
				report = large
			}
			running.Go(func() {
				stream, err := client.ReportDevices(ctx)
				for err == nil {
					if err = stream.Send(report); err != nil {
						_, err = stream.Recv()
					}
				}
				if status.Code(err) == codes.ResourceExhausted {
					refused.Add(1)
				}
			})
		}
	}
	// At once: the streams use the CPUs, so that each connection takes long.
	idle := make([]net.Conn, 1000)
	var connecting errgroup.Group
	for i := range idle {
		connecting.Go(func() (err error) {
			idle[i], err = new(net.Dialer).DialContext(ctx, "tcp", r.address)
			return err
		})
	}
	require.NoError(f, connecting.Wait())
	return func() {
		cancel()
		running.Wait()
		for _, conn := range idle {
			_ = conn.Close()
		}
	}
}

// from makes connections from a local address.
func from(address string) grpc.DialOption {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return grpc.WithContextDialer(func(ctx context.Context, server string) (net.Conn, error) {
		return dialer.DialContext(ctx, "tcp", server)
	})
}

func requireTooLarge(t *testing.T, ctx context.Context, client instancev1.InstanceServiceClient, report *instancev1.ReportDevicesRequest) { //nolint:revive // t is first in tests
	t.Helper()
	stream, err := client.ReportDevices(ctx)
	require.NoError(t, err)
	_ = stream.Send(report) // Recv returns the error
	_, err = stream.Recv()
	require.Equal(t, codes.ResourceExhausted, status.Code(err), err)
	require.ErrorContains(t, err, "received message larger than max")
}

// Calls without a verified token are limited before their messages are received.
func TestFloodWithoutIdentity(t *testing.T) {
	r := startSecured(t, api.Config().Host, slow)
	health := healthv1.NewHealthClient(r.dial(""))
	for range 8 {
		watch, err := health.Watch(t.Context(), &healthv1.HealthCheckRequest{})
		require.NoError(t, err)
		_, err = watch.Recv()
		require.NoError(t, err)
	}
	_, err := health.Check(t.Context(), &healthv1.HealthCheckRequest{})
	require.Equal(t, codes.ResourceExhausted, status.Code(err), err)
	require.InDelta(t, 1, r.refusals("TooManyCalls"), 0)
}

// The connections of one address are limited.
func TestFloodOfConnections(t *testing.T) {
	r := startSecured(t, api.Config().Host, slow)
	for range 100 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", r.address)
		require.NoError(t, err)
		defer conn.Close()
	}
	require.Eventually(t, func() bool { return r.refusedConnections() == 100-64 }, timeout, pollInterval)
}
