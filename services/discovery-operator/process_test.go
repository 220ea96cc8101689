package operator_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/listentest"
	discoveryv0 "akri.sh/proto/v0"
)

// handlerProcessAddress makes the test binary a handler at the address.
const handlerProcessAddress = "TEST_HANDLER_ADDRESS"

// runHandlerProcess serves a handler with an unmodified gRPC server until the process is killed.
func runHandlerProcess(address string) {
	network := "tcp"
	if filepath.IsAbs(address) {
		network = "unix"
	}
	listener, err := net.Listen(network, address)
	if err != nil {
		panic(err)
	}
	server := grpc.NewServer()
	discoveryv0.RegisterDiscoveryHandlerServer(server, handlerServer{handle: func(stream grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]) error {
		if err := stream.Send(&discoveryv0.DiscoverResponse{Devices: []*discoveryv0.Device{{Id: "x"}}}); err != nil {
			return err
		}
		<-stream.Context().Done()
		return nil
	}})
	_ = server.Serve(listener)
}

func startHandlerProcess(t *testing.T, address string) *os.Process {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), handlerProcessAddress+"="+address)
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	return command.Process
}

// A handler whose process is stopped is offline, keeps its devices, and is active when it
// continues.
func TestStoppedProcess(t *testing.T) {
	for name, address := range map[string]string{"unix": filepath.Join(t.TempDir(), "h.sock"), "network": listentest.Address(t)} {
		t.Run(name, func(t *testing.T) {
			h := newHarness(t, forever)
			h.config.ProbeInterval = 300 * time.Millisecond
			process := startHandlerProcess(t, address)
			h.registrar.add("foo", address, true)
			h.start()
			key := h.apply(h.namespace, "stopped", "foo", "d")
			h.reported(key, true, "x")
			h.eventually(func() bool { return h.registrar.status(address) == active }, "active")

			require.NoError(t, process.Signal(syscall.SIGSTOP))
			h.eventually(func() bool { return h.registrar.status(address) == offline }, "offline")
			require.Contains(t, h.problem(key, akriv0.ReasonHandlerOffline).GetMessage(), address)
			require.NoError(t, process.Signal(syscall.SIGCONT))
			h.eventually(func() bool { return h.registrar.status(address) == active }, "active again")
			h.neverGone(key, "x")
		})
	}
}
