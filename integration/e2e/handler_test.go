package e2e_test

import (
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	discoveryv0 "akri.sh/proto/v0"

	"akri.sh/integration/cluster"
)

// listHandler is a Discovery Handler that uses only the v0 API. It sends its first list, if
// that has devices, and those of send.
type listHandler struct {
	discoveryv0.UnimplementedDiscoveryHandlerServer

	devices []*discoveryv0.Device
	updates chan []*discoveryv0.Device
	// stop ends the handler before the end of the test, as if it was killed: its socket file stays.
	stop func()
	// streams is the number of open Discover streams.
	streams atomic.Int32
}

// Discover sends the lists and holds the stream open.
func (h *listHandler) Discover(_ *discoveryv0.DiscoverRequest, stream discoveryv0.DiscoveryHandler_DiscoverServer) error {
	h.streams.Add(1)
	defer h.streams.Add(-1)
	send := func(devices []*discoveryv0.Device) error {
		return stream.Send(&discoveryv0.DiscoverResponse{Devices: devices})
	}
	if len(h.devices) > 0 {
		if err := send(h.devices); err != nil {
			return err
		}
	}
	for {
		select {
		case <-stream.Context().Done():
			return nil
		case devices := <-h.updates:
			if err := send(devices); err != nil {
				return err
			}
		}
	}
}

// send sends another list on the open stream.
func (h *listHandler) send(t *testing.T, devices ...*discoveryv0.Device) {
	t.Helper()
	select {
	case h.updates <- devices:
	case <-time.After(timeout):
		require.FailNow(t, "no open stream")
	}
}

// handle runs and registers a handler on the node until the test ends.
func handle(t *testing.T, node cluster.Node, name string, devices ...*discoveryv0.Device) *listHandler {
	t.Helper()
	return handleAt(t, node, name, name, devices...)
}

// handleAt runs and registers a handler whose socket has another name.
func handleAt(t *testing.T, node cluster.Node, name, socket string, devices ...*discoveryv0.Device) *listHandler {
	t.Helper()
	return handleAs(t, node, &discoveryv0.RegisterDiscoveryHandlerRequest{Name: name, Endpoint: socket, Shared: true}, devices...)
}

// handleAs runs a handler whose endpoint is the name of a socket, and registers it. Like handlers
// in other languages it binds its socket once, after it has removed that of an earlier process.
func handleAs(
	t *testing.T, node cluster.Node, request *discoveryv0.RegisterDiscoveryHandlerRequest, devices ...*discoveryv0.Device,
) *listHandler {
	t.Helper()
	return handleIn(t, node.AkriDir(), request, devices...)
}

// handleIn does so in the directory of a node that the registrar and handlers mount.
func handleIn(
	t *testing.T, directory string, request *discoveryv0.RegisterDiscoveryHandlerRequest, devices ...*discoveryv0.Device,
) *listHandler {
	t.Helper()
	socket := request.Endpoint
	path := filepath.Join(directory, socket+".sock")
	_ = os.Remove(path)
	t.Cleanup(func() { _ = os.Remove(path) })
	handler := &listHandler{devices: devices, updates: make(chan []*discoveryv0.Device)}
	listener, err := net.Listen("unix", path)
	require.NoError(t, err)
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	server := grpc.NewServer()
	handler.stop = server.Stop
	discoveryv0.RegisterDiscoveryHandlerServer(server, handler)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)
	request.Endpoint, request.EndpointType = "/var/lib/akri/"+socket+".sock", discoveryv0.RegisterDiscoveryHandlerRequest_UDS
	require.NoError(t, registerIn(t, directory, request))
	return handler
}

// silentHandler checks that a handler that sends no empty first list, like those of upstream Akri,
// is no problem of its Configuration.
func silentHandler(t *testing.T) {
	handler := handle(t, akri.Cluster.Nodes()[0], "e2eSilent")
	apply(t, configurationOf("e2e-silent", "e2eSilent", ""))
	awaitCondition(t, "default", "e2e-silent", akriv0.ConditionHandlerRegistered, metav1.ConditionTrue, akriv0.ReasonAsExpected)
	handler.send(t, &discoveryv0.Device{Id: "x"})
	awaitInstances(t, "default", "e2e-silent", instanceName("e2e-silent", "x", "", true))
}

func register(t *testing.T, node cluster.Node, request *discoveryv0.RegisterDiscoveryHandlerRequest) error {
	t.Helper()
	return registerIn(t, node.AkriDir(), request)
}

func registerIn(t *testing.T, directory string, request *discoveryv0.RegisterDiscoveryHandlerRequest) error {
	t.Helper()
	conn := dialSocket(t, filepath.Join(directory, "agent-registration.sock"))
	_, err := discoveryv0.NewRegistrationClient(conn).RegisterDiscoveryHandler(t.Context(), request)
	return err
}
