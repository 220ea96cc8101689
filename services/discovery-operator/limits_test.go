package operator_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/rpctest"
	discoveryv0 "akri.sh/proto/v0"
)

// handlerFunc implements Discover of a handler.
type handlerFunc func(grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]) error

func (f handlerFunc) serve(t *testing.T, h *harness, name string) {
	t.Helper()
	endpoint := filepath.Join(t.TempDir(), "h.sock")
	rpctest.ServeAt(t, "unix://"+endpoint, func(s grpc.ServiceRegistrar) {
		discoveryv0.RegisterDiscoveryHandlerServer(s, handlerServer{handle: f})
	})
	h.registrar.add(name, endpoint, true)
}

type handlerServer struct {
	discoveryv0.UnimplementedDiscoveryHandlerServer
	handle handlerFunc
}

func (s handlerServer) Discover(_ *discoveryv0.DiscoverRequest, stream grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]) error {
	return s.handle(stream)
}

// serveRaw registers a socket that does not speak gRPC.
func serveRaw(t *testing.T, h *harness, name string, respond func(net.Conn)) {
	t.Helper()
	endpoint := filepath.Join(t.TempDir(), "h.sock")
	listener, err := net.Listen("unix", endpoint)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { defer conn.Close(); respond(conn) }()
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); <-done })
	h.registrar.add(name, endpoint, true)
}

// Handlers that hang, close or send garbage do not affect other handlers.
func TestBrokenHandlersDoNotAffectOthers(t *testing.T) {
	h := newHarness(t, forever)
	serveRaw(t, h, "hangs", func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	serveRaw(t, h, "garbage", func(conn net.Conn) { _, _ = conn.Write([]byte(strings.Repeat("\x00\xffHTTP/1.1 400 no\r\n", 1000))) })
	serveRaw(t, h, "closes", func(net.Conn) {})
	handlerFunc(func(stream grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]) error {
		return stream.Send(&discoveryv0.DiscoverResponse{Devices: []*discoveryv0.Device{{Id: "big", Properties: map[string]string{"V": strings.Repeat("x", 65<<20)}}}})
	}).serve(t, h, "big")
	handlerFunc(func(stream grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]) error {
		return stream.SendMsg(&discoveryv0.Device{Id: "\xff is not valid UTF-8"})
	}).serve(t, h, "invalid")
	handler, _ := startHandler(t, h, "d", "x")
	h.start()
	reasons := map[string]string{
		"hangs": "", "garbage": akriv0.ReasonHandlerOffline, "closes": akriv0.ReasonHandlerOffline,
		"big": akriv0.ReasonDiscoverFailed, "invalid": akriv0.ReasonDiscoverFailed,
	}
	for name := range reasons {
		h.apply(h.namespace, strings.ToLower(name), name, "d")
	}
	good := h.apply(h.namespace, "good", "foo", "d")
	h.reported(good, true, "x")
	for name, reason := range reasons {
		key := h.namespace + "/" + strings.ToLower(name)
		if reason != "" {
			h.problem(key, reason)
		}
		h.reported(key, false)
	}
	handler.respond("d", answer{ids: []string{"x", "y"}})
	require.Empty(t, h.reported(good, true, "x", "y").GetProblems())
}

// A handler that sends lists continuously does not affect other handlers.
func TestFloodDoesNotAffectOthers(t *testing.T) {
	h := newHarness(t, forever)
	handlerFunc(func(stream grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]) error {
		for i := 0; ; i++ {
			if err := stream.Send(&discoveryv0.DiscoverResponse{Devices: []*discoveryv0.Device{{Id: fmt.Sprint(i)}}}); err != nil {
				return err
			}
		}
	}).serve(t, h, "flood")
	handler, _ := startHandler(t, h, "d", "x")
	h.start()
	flood := h.apply(h.namespace, "flood", "flood", "d")
	good := h.apply(h.namespace, "good", "foo", "d")
	h.reported(good, true, "x")
	h.eventually(func() bool { return len(h.writer.reportsOf(flood)) > 20 }, "reports of the flood")
	handler.respond("d", answer{ids: []string{"x", "y"}})
	h.reported(good, true, "x", "y")
}

func TestLastOfManyListsIsUsed(t *testing.T) {
	h := newHarness(t, forever)
	handlerFunc(func(stream grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]) error {
		for i := range 500 {
			if err := stream.Send(&discoveryv0.DiscoverResponse{Devices: []*discoveryv0.Device{{Id: fmt.Sprint(i)}}}); err != nil {
				return err
			}
		}
		<-stream.Context().Done()
		return context.Cause(stream.Context())
	}).serve(t, h, "burst")
	h.start()
	h.reported(h.apply(h.namespace, "burst", "burst", "d"), true, "499")
}

func TestDeviceLimit(t *testing.T) {
	h := newHarness(t, forever)
	const limit = 1_000
	handlerFunc(func(stream grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]) error {
		list := make([]*discoveryv0.Device, limit+1)
		for i := range list {
			list[i] = &discoveryv0.Device{Id: fmt.Sprintf("device-%05d", i), Properties: map[string]string{"URL": fmt.Sprintf("http://device-%05d", i)}}
		}
		if err := stream.Send(&discoveryv0.DiscoverResponse{Devices: list}); err != nil {
			return err
		}
		<-stream.Context().Done()
		return context.Cause(stream.Context())
	}).serve(t, h, "many")
	startHandler(t, h, "d", "x")
	h.start()
	key := h.apply(h.namespace, "many", "many", "d")
	good := h.apply(h.namespace, "good", "foo", "d")
	h.reported(good, true, "x")
	require.Contains(t, h.problem(key, akriv0.ReasonInvalidDevice).GetMessage(), "1001 devices: 1 are refused, because --max-devices is 1000")
	reports := h.writer.reportsOf(key)
	report := reports[len(reports)-1]
	require.True(t, report.GetComplete())
	require.Len(t, report.GetDevices(), limit)
}
