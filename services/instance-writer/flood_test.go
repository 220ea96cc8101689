package instancewriter_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"k8s.io/client-go/kubernetes"

	instancev1 "akri.sh/proto/akri/instance/v1"
)

// memoryLimit is the limit of the container in the chart.
const memoryLimit = 256 << 20

// startSecuredProcess starts an instance-writer with TLS in its own process, with the memory
// settings of the chart. peak returns the most memory that it had.
func startSecuredProcess(t *testing.T) (r *securedReplica, peak func() int) {
	t.Helper()
	client, err := kubernetes.NewForConfig(api.Config())
	require.NoError(t, err)
	r = &securedReplica{TB: t, kubernetes: client, address: freeAddress(t), ca: filepath.Join(t.TempDir(), "ca.crt")}
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
	r, peak := startSecuredProcess(t)
	flooder, served := token(t, namespace, agent, f.nodes[0], audience), token(t, namespace, agent, f.nodes[1], audience)
	client := instancev1.NewInstanceServiceClient(r.dial(served, from("127.0.0.2")))
	reports, err := client.ReportDevices(t.Context())
	require.NoError(t, err)
	name := f.instanceName("foo")
	require.NoError(t, reports.Send(f.newReport(f.nodes[1], f.device("", "foo", true))))
	_, err = reports.Recv()
	require.NoError(t, err)
	call := func() error {
		request := &instancev1.ReserveSlotsRequest{Node: f.nodes[1], Claims: []*instancev1.SlotClaim{claim(name, 0)}}
		_, err := client.ReserveSlots(t.Context(), request)
		return err
	}
	require.NoError(t, call())

	ctx, stop := context.WithCancel(t.Context())
	var flood sync.WaitGroup
	defer func() { stop(); flood.Wait() }()
	large := f.newReport(f.nodes[0], f.device("", strings.Repeat("x", 64<<20), true))
	requireTooLarge(t, ctx, r.client(flooder), large)
	// As large as allowed. Their Configuration does not exist, so each waits for it.
	large = f.newReport(f.nodes[0], f.device("", strings.Repeat("x", 3<<20), true))
	small := f.newReport(f.nodes[0])
	small.Configuration, large.Configuration = "absent", "absent"
	var refused atomic.Int64
	for range 4 {
		conn := instancev1.NewInstanceServiceClient(r.dial(flooder))
		for i := range 2500 {
			report := small
			if i%100 == 0 { // encoding a large report for each stream would be most of the test's time
				report = large
			}
			flood.Go(func() {
				stream, err := conn.ReportDevices(ctx)
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
	for range 1000 {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", r.address)
		require.NoError(t, err)
		defer conn.Close()
	}
	for range 20 {
		require.NoError(t, call())
	}
	require.Eventually(t, func() bool { return refused.Load() > 100 }, timeout, pollInterval)
	require.NoError(t, call())
	require.Less(t, peak(), memoryLimit)
	t.Logf("%d MiB at most, %d streams refused", peak()>>20, refused.Load())
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
