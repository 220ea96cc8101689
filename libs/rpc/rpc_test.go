package rpc_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"akri.sh/libs/rpc"
	"akri.sh/libs/rpctest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func none(grpc.ServiceRegistrar) {}

func TestUnixSocketServesHealth(t *testing.T) {
	address := rpctest.Serve(t, none)
	info, err := os.Stat(strings.TrimPrefix(address, "unix://"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	response, err := healthv1.NewHealthClient(rpctest.Dial(t, address)).Check(t.Context(), &healthv1.HealthCheckRequest{})
	require.NoError(t, err)
	require.Equal(t, healthv1.HealthCheckResponse_SERVING, response.GetStatus())
}

func TestStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	dead, err := net.Listen("unix", path)
	require.NoError(t, err)
	dead.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, dead.Close())

	listener, err := rpc.Socket{Path: path}.Bind(t.Context())
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	require.NoFileExists(t, path)
}

func TestSocketInUseIsKept(t *testing.T) {
	address := rpctest.Serve(t, none)
	_, err := rpc.Listen(t.Context(), zap.NewNop(), address)
	require.ErrorContains(t, err, "is in use by another process")
}

func TestCancelledListenKeepsTheSocket(t *testing.T) {
	address := rpctest.Serve(t, none)
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := rpc.Listen(stopped, zap.NewNop(), address)
	require.ErrorIs(t, err, context.Canceled)
	require.FileExists(t, strings.TrimPrefix(address, "unix://"))
}

func TestInvalidSocketPathsAreRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	for path, want := range map[string]string{
		"relative.sock":                    "must be absolute",
		"/tmp/" + strings.Repeat("x", 110): "at most 107 bytes",
		file:                               "is not a socket",
	} {
		_, err := rpc.Socket{Path: path}.Bind(t.Context())
		require.ErrorContains(t, err, want)
	}
}

func TestCloseKeepsAReplacedSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	first, err := rpc.Socket{Path: path}.Bind(t.Context())
	require.NoError(t, err)
	require.NoError(t, os.Remove(path))
	second, err := rpc.Socket{Path: path}.Bind(t.Context())
	require.NoError(t, err)
	defer second.Close()
	require.NoError(t, first.Close())
	require.FileExists(t, path)
}

// TestModeOfSocketDirectory checks that only a directory that is named like the socket changes.
func TestModeOfSocketDirectory(t *testing.T) {
	for name, expected := range map[string]os.FileMode{"service": 0o700, "run": 0o755} {
		directory := filepath.Join(t.TempDir(), name)
		require.NoError(t, os.Mkdir(directory, 0o755))
		listener, err := rpc.ListenPrivate(t.Context(), zap.NewNop(), "unix://"+filepath.Join(directory, "service.sock"))
		require.NoError(t, err)
		info, err := os.Stat(directory)
		require.NoError(t, err)
		require.Equal(t, expected, info.Mode().Perm(), name)
		require.NoError(t, listener.Close())
	}
}

func TestConnectionSurvivesServerRestart(t *testing.T) {
	address := "unix://" + filepath.Join(t.TempDir(), "s.sock")
	stop := rpctest.ServeAt(t, address, none)
	client := healthv1.NewHealthClient(rpctest.Dial(t, address))
	_, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{})
	require.NoError(t, err)
	stop()
	rpctest.ServeAt(t, address, none)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.Eventually(t, func() bool {
		// A call that was on its way when the old server went fails; one that comes later must not.
		_, err := client.Check(ctx, &healthv1.HealthCheckRequest{}, grpc.WaitForReady(true))
		return err == nil
	}, time.Minute, time.Millisecond)
}

func TestServeStopsWithOpenStreams(t *testing.T) {
	t.Parallel()
	listener, err := rpc.Listen(t.Context(), zap.NewNop(), "unix://"+filepath.Join(t.TempDir(), "s.sock"))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- rpc.Serve(ctx, rpc.NewServer(zaptest.NewLogger(t), prometheus.NewRegistry()), listener)
	}()
	watch, err := healthv1.NewHealthClient(rpctest.Dial(t, "unix://"+listener.Addr().String())).Watch(t.Context(), &healthv1.HealthCheckRequest{})
	require.NoError(t, err)
	_, err = watch.Recv()
	require.NoError(t, err)
	cancel()
	require.NoError(t, <-done)
}

// A call that ignores the end of its context cannot be ended. It does not delay the process.
func TestServeStopsWithHangingCall(t *testing.T) {
	t.Parallel()
	listener, err := rpc.Listen(t.Context(), zap.NewNop(), "unix://"+filepath.Join(t.TempDir(), "s.sock"))
	require.NoError(t, err)
	called, release, returned := make(chan struct{}), make(chan struct{}), make(chan struct{})
	hang := grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
		defer close(returned)
		close(called)
		<-release
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- rpc.Serve(ctx, rpc.NewServer(zap.NewNop(), prometheus.NewRegistry(), hang), listener)
	}()
	conn := rpctest.Dial(t, "unix://"+listener.Addr().String())
	_, err = conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true}, "/test.Test/Hang")
	require.NoError(t, err)
	<-called
	cancel()
	require.NoError(t, <-done)
	select {
	case <-returned:
		require.Fail(t, "the call must still hang")
	default:
	}
	close(release)
	<-returned
}

func TestKeepReopensUntilContextEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	rpc.Keep(ctx, zaptest.NewLogger(t), time.Second, func(_ context.Context, healthy func()) error {
		healthy()
		if calls++; calls == 3 {
			cancel()
		}
		return nil
	})
	require.Equal(t, 3, calls)
}

// A stream that ends soon after it has worked does not reset the backoff.
func TestKeepBacksOffFromStreamsThatEndSoon(t *testing.T) {
	const maxInterval = 5 * time.Second
	for name, c := range map[string]struct{ lifetime, want time.Duration }{
		"soon": {time.Second, maxInterval / 2}, "late": {maxInterval, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				ended, delay := time.Now(), time.Duration(0)
				calls := 0
				rpc.Keep(ctx, zap.NewNop(), maxInterval, func(_ context.Context, healthy func()) error {
					delay = time.Since(ended)
					healthy()
					<-time.After(c.lifetime)
					ended = time.Now()
					if calls++; calls == 30 {
						cancel()
					}
					return nil
				})
				require.GreaterOrEqual(t, delay, c.want)
				require.LessOrEqual(t, delay, max(c.want*3, 100*time.Millisecond))
			})
		})
	}
}

func TestProbe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	require.ErrorContains(t, rpc.Probe(t.Context(), "unix://"+path), "connecting failed")

	frozen, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, rpc.Probe(ctx, "unix://"+path), context.DeadlineExceeded)
	require.NoError(t, frozen.Close())

	require.NoError(t, rpc.Probe(t.Context(), rpctest.Serve(t, none)))
}
