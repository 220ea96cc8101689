package rpc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"akri.sh/libs/rpc"
	"akri.sh/libs/rpctest"
)

// bindTime is the time after which clients must reach a server whose socket was removed: a second,
// and as much for machines that do other work, too.
const bindTime = 2 * time.Second

// serveName serves calls that answer with the name until the test ends or stop is called.
func serveName(t *testing.T, name string, listener net.Listener) (stop func()) {
	t.Helper()
	answer := grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		for {
			if err := stream.RecvMsg(&emptypb.Empty{}); err == io.EOF { //nolint:errorlint // never wrapped
				return status.Error(codes.Aborted, name)
			} else if err != nil {
				return err
			}
			if err := stream.SendMsg(&emptypb.Empty{}); err != nil {
				return err
			}
		}
	})
	server := rpc.NewServer(zap.NewNop(), prometheus.NewRegistry(), answer)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- rpc.Serve(ctx, server, listener) }()
	stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	t.Cleanup(stop)
	return stop
}

// nameAt returns the name of the server that a new client reaches.
func nameAt(ctx context.Context, path string) (string, error) {
	conn, err := rpc.Dial("unix://"+path, prometheus.NewRegistry())
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return callName(ctx, conn)
}

func callName(ctx context.Context, conn *grpc.ClientConn) (string, error) {
	err := conn.Invoke(ctx, "/test.Test/Name", &emptypb.Empty{}, &emptypb.Empty{}, grpc.WaitForReady(true))
	if status.Code(err) != codes.Aborted {
		return "", err
	}
	return status.Convert(err).Message(), nil
}

// requireName requires new clients to reach the server with the name within bindTime. A call fails
// if its server stops.
func requireName(t *testing.T, path, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bindTime)
	defer cancel()
	for {
		found, err := nameAt(ctx, path)
		if err == nil && found == name {
			return
		}
		require.NoError(t, ctx.Err(), "found %q instead of %q: %v", found, name, err)
	}
}

// listenAt returns a Listener of a server with the name "own".
func listenAt(t *testing.T, path string) *rpc.Listener {
	t.Helper()
	listener, err := rpc.Listen(t.Context(), zaptest.NewLogger(t), "unix://"+path)
	require.NoError(t, err)
	serveName(t, "own", listener)
	requireName(t, path, "own")
	return listener
}

// bindOther replaces the file at the path, as handlers in other languages do at their start.
func bindOther(t *testing.T, path string) *net.UnixListener {
	t.Helper()
	fresh := path + ".new"
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", fresh)
	require.NoError(t, err)
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	require.NoError(t, os.Rename(fresh, path))
	return listener.(*net.UnixListener)
}

// removeDirectory removes the directory of the path. On a slow machine the Listener may create a
// file in it meanwhile.
func removeDirectory(t *testing.T, path string) {
	t.Helper()
	require.Eventually(t, func() bool { return os.RemoveAll(filepath.Dir(path)) == nil }, bindTime, time.Millisecond)
}

func TestListenerBindsAgain(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		// change returns how to undo what the Listener must not undo. Nil: nothing.
		change func(t *testing.T, path string) (undo func())
		// problem is what Check reports before that.
		problem string
	}{
		"socket removed": {change: func(t *testing.T, path string) func() { require.NoError(t, os.Remove(path)); return nil }},
		"directory removed": {change: func(t *testing.T, path string) func() {
			removeDirectory(t, path)
			return nil
		}},
		"directory moved": {change: func(t *testing.T, path string) func() {
			require.NoError(t, os.Rename(filepath.Dir(path), filepath.Join(t.TempDir(), "moved")))
			return nil
		}},
		"directory created again": {change: func(t *testing.T, path string) func() {
			removeDirectory(t, path)
			require.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
			return nil
		}},
		"replaced by the socket of an ended process": {change: func(t *testing.T, path string) func() {
			require.NoError(t, bindOther(t, path).Close())
			return nil
		}},
		"replaced by another server that stops": {problem: "is in use by another process", change: func(t *testing.T, path string) func() {
			other := bindOther(t, path)
			other.SetUnlinkOnClose(true)
			return serveName(t, "other", other)
		}},
		"replaced by another server that is killed": {problem: "is in use by another process", change: func(t *testing.T, path string) func() {
			return serveName(t, "other", bindOther(t, path))
		}},
		"replaced by a file": {problem: "is not a socket", change: func(t *testing.T, path string) func() {
			require.NoError(t, os.WriteFile(path+".new", nil, 0o600))
			require.NoError(t, os.Rename(path+".new", path))
			return func() { require.NoError(t, os.Remove(path)) }
		}},
		"directory replaced by a file": {problem: "not a directory", change: func(t *testing.T, path string) func() {
			removeDirectory(t, path)
			require.NoError(t, os.WriteFile(filepath.Dir(path), nil, 0o600))
			return func() { require.NoError(t, os.Remove(filepath.Dir(path))) }
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "directory", "s.sock")
			listener := listenAt(t, path)
			require.NoError(t, listener.Check(t.Context()))
			for range 2 {
				undo := c.change(t, path)
				if undo != nil {
					require.ErrorContains(t, listener.Check(t.Context()), c.problem)
					undo()
				}
				requireName(t, path, "own")
				require.NoError(t, listener.Check(t.Context()))
			}
			info, err := os.Stat(path)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
		})
	}
}

// In a container, a directory that is removed on the node stays mounted, and nothing can be created
// in it. Only a restart of the container helps.
func TestListenerInRemovedDirectory(t *testing.T) {
	directory := filepath.Join(t.TempDir(), "mounted")
	require.NoError(t, os.Mkdir(directory, 0o700))
	mounted, err := os.Open(directory)
	require.NoError(t, err)
	defer mounted.Close()
	path := fmt.Sprintf("/proc/self/fd/%d/s.sock", mounted.Fd())
	listener, client := listenAt(t, path), rpc.CheckDirectory("unix://"+path, "unix:///none/s.sock", "localhost:1")
	require.NoError(t, client(t.Context()))
	removeDirectory(t, filepath.Join(directory, "s.sock"))
	require.ErrorContains(t, listener.Check(t.Context()), "clients cannot connect")
	require.EqualError(t, client(t.Context()), "the directory "+filepath.Dir(path)+" was removed")
}

func TestClosedListenerStaysClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	listener, err := rpc.Listen(t.Context(), zaptest.NewLogger(t), "unix://"+path)
	require.NoError(t, err)
	require.NoError(t, listener.Close())
	require.ErrorIs(t, listener.Close(), net.ErrClosed)
	require.NoFileExists(t, path)
	_, err = listener.Accept()
	require.ErrorIs(t, err, net.ErrClosed)
	require.Error(t, listener.Check(t.Context()))
	require.NoFileExists(t, path)
}

// TestListenerRandomly removes and replaces a socket at random. New clients reach the server of the
// model, and no call on a connection that is open fails.
func TestListenerRandomly(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "directory", "s.sock")
	listenAt(t, path)
	model := &socketModel{path: path, owner: "own"}
	model.settled.Store(settled{})
	clients := startClients(t, model)

	for step := range 60 {
		model.settled.Store(settled{})
		model.step(t, random.IntN(6))
		requireName(t, path, model.owner)
		model.settled.Store(settled{model.owner, step})
	}
	clients.awaitCalls(t)
}

// socketModel is what should be at a path.
type socketModel struct {
	path      string
	owner     string
	stopOther func()       // nil without another server
	settled   atomic.Value // the settled owner
}

// settled is the owner after a step. It is empty until new clients reach it.
type settled struct {
	owner string
	step  int
}

// step makes one change. The Listener binds whatever is not served by another process.
func (m *socketModel) step(t *testing.T, action int) {
	t.Helper()
	switch action {
	case 0: // another server takes the path over, or ends, and its file stays
		if m.stopOther == nil {
			m.stopOther, m.owner = serveName(t, "other", bindOther(t, m.path)), "other"
			return
		}
		m.stopOther()
		m.stopOther = nil
	case 1:
		require.NoError(t, os.Remove(m.path))
	case 2:
		require.NoError(t, os.Rename(m.path, m.path+".old"))
	case 3:
		removeDirectory(t, m.path)
	case 4:
		removeDirectory(t, m.path)
		_ = os.Mkdir(filepath.Dir(m.path), 0o700) // the Listener may have created it
	case 5:
		require.NoError(t, os.Chmod(m.path, 0o600)) // changes nothing
		return
	}
	m.owner = "own"
}

// clients call all the time, each with its own kind of connection, until the test ends.
type clients struct{ calls [3]atomic.Int64 }

func startClients(t *testing.T, model *socketModel) *clients {
	t.Helper()
	c := &clients{}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	t.Cleanup(func() { cancel(); running.Wait() })
	conn := rpctest.Dial(t, "unix://"+model.path)
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/test.Test/Echo")
	require.NoError(t, err)
	for i, call := range []func() error{
		func() error { // a call in progress
			return errors.Join(stream.SendMsg(&emptypb.Empty{}), stream.RecvMsg(&emptypb.Empty{}))
		},
		func() error { // new calls on the connection
			found, err := callName(ctx, conn)
			if err == nil && found != "own" {
				err = fmt.Errorf("found %q", found)
			}
			return err
		},
		func() error { // new connections
			before := model.settled.Load().(settled)
			found, err := nameAt(ctx, model.path)
			if before.owner == "" || before != model.settled.Load() || (err == nil && found == before.owner) {
				return nil
			}
			return fmt.Errorf("found %q instead of %q: %w", found, before.owner, err)
		},
	} {
		running.Go(func() {
			for ctx.Err() == nil {
				if err := call(); err != nil && ctx.Err() == nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
				c.calls[i].Add(1)
			}
		})
	}
	return c
}

// awaitCalls waits until each client has made another call.
func (c *clients) awaitCalls(t *testing.T) {
	t.Helper()
	for i := range c.calls {
		before := c.calls[i].Load()
		require.Eventually(t, func() bool { return c.calls[i].Load() > before+1 }, time.Minute, time.Millisecond)
	}
}
