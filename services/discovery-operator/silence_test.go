package operator_test

import (
	"cmp"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"akri.sh/libs/listentest"
	discoveryv0 "akri.sh/proto/v0"
)

// Handlers with an unmodified gRPC server send nothing for AKRI_SILENCE, by default four seconds
// with frequent probes. They get one request and stay active. A handler has half a second to answer
// a probe, because this process can wait for a processor that others use.
func TestLongSilence(t *testing.T) {
	duration, err := time.ParseDuration(cmp.Or(os.Getenv("AKRI_SILENCE"), "4s"))
	require.NoError(t, err)
	h := newHarness(t, forever)
	if os.Getenv("AKRI_SILENCE") == "" {
		h.config.ProbeInterval = 1500 * time.Millisecond
	}
	calls := map[string]*atomic.Int32{}
	for network, address := range map[string]string{"unix": filepath.Join(t.TempDir(), "h.sock"), "tcp": listentest.Address(t)} {
		calls[address] = serveSilently(t, network, address)
		h.registrar.add(network, address, true)
		h.apply(h.namespace, network, network, "d")
	}
	h.start()
	for address := range calls {
		h.eventually(func() bool { return h.registrar.status(address) == active && calls[address].Load() == 1 }, "a request at "+address)
	}
	require.Never(t, func() bool {
		for address := range calls {
			if h.registrar.status(address) != active || calls[address].Load() != 1 {
				return true
			}
		}
		return false
	}, duration, 10*time.Millisecond, "a handler got another request or is not active")
	require.Empty(t, h.warnings.All())
}

// serveSilently serves a handler that sends no list until the test ends. It counts the requests.
func serveSilently(t *testing.T, network, address string) *atomic.Int32 {
	t.Helper()
	listener, err := net.Listen(network, address)
	require.NoError(t, err)
	calls := &atomic.Int32{}
	server := grpc.NewServer()
	discoveryv0.RegisterDiscoveryHandlerServer(server, handlerServer{handle: func(stream grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]) error {
		calls.Add(1)
		<-stream.Context().Done()
		return nil
	}})
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	return calls
}
