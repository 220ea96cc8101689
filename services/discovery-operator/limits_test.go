package operator_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/rpctest"
	discoveryv0 "akri.sh/proto/v0"
)

// handlerFunc is a handler that may do anything with its stream.
type handlerFunc func(grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]) error

func (f handlerFunc) serve(t *testing.T, w *world, name string) {
	t.Helper()
	endpoint := filepath.Join(t.TempDir(), "h.sock")
	rpctest.ServeAt(t, "unix://"+endpoint, func(s grpc.ServiceRegistrar) {
		discoveryv0.RegisterDiscoveryHandlerServer(s, discover{handle: f})
	})
	w.registrar.add(name, endpoint, true)
}

type discover struct {
	discoveryv0.UnimplementedDiscoveryHandlerServer
	handle handlerFunc
}

func (d discover) Discover(_ *discoveryv0.DiscoverRequest, stream grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]) error {
	return d.handle(stream)
}

// hostile serves something on a socket that is no handler.
func hostile(t *testing.T, w *world, name string, answer func(net.Conn)) {
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
			go func() { defer conn.Close(); answer(conn) }()
		}
	}()
	t.Cleanup(func() { _ = listener.Close(); <-done })
	w.registrar.add(name, endpoint, true)
}

func TestHandlersThatHangOrAnswerGarbageHarmNobodyElse(t *testing.T) {
	w := newWorld(t, forever)
	hostile(t, w, "hangs", func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
	hostile(t, w, "garbage", func(conn net.Conn) { _, _ = conn.Write([]byte(strings.Repeat("\x00\xffHTTP/1.1 400 no\r\n", 1000))) })
	hostile(t, w, "hangsUp", func(net.Conn) {})
	handlerFunc(func(stream grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]) error {
		return stream.Send(&discoveryv0.DiscoverResponse{Devices: []*discoveryv0.Device{{Id: "big", Properties: map[string]string{"V": strings.Repeat("x", 65<<20)}}}})
	}).serve(t, w, "big")
	handlerFunc(func(stream grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]) error {
		return stream.SendMsg(&discoveryv0.Device{Id: "\xff no list at all"})
	}).serve(t, w, "invalid")
	handler, _ := serving(t, w, "d", "x")
	w.start()
	reasons := map[string]string{
		"hangs": "", "garbage": akriv0.ReasonHandlerOffline, "hangsUp": akriv0.ReasonHandlerOffline,
		"big": akriv0.ReasonDiscoverFailed, "invalid": akriv0.ReasonDiscoverFailed,
	}
	for name := range reasons {
		w.apply(w.namespace, strings.ToLower(name), name, "d")
	}
	good := w.apply(w.namespace, "good", "foo", "d")
	w.reported(good, true, "x")
	for name, reason := range reasons {
		key := w.namespace + "/" + strings.ToLower(name)
		if reason != "" {
			w.problem(key, reason)
		}
		w.reported(key, false)
	}
	handler.says("d", answer{ids: []string{"x", "y"}})
	require.Empty(t, w.reported(good, true, "x", "y").GetProblems())
}

func TestAHandlerThatFloodsIsTakenSlowlyAndHarmsNobodyElse(t *testing.T) {
	w := newWorld(t, forever)
	var sent atomic.Int64
	handlerFunc(func(stream grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]) error {
		for {
			if err := stream.Send(&discoveryv0.DiscoverResponse{Devices: []*discoveryv0.Device{{Id: fmt.Sprint(sent.Add(1))}}}); err != nil {
				return err
			}
		}
	}).serve(t, w, "flood")
	handler, _ := serving(t, w, "d", "x")
	w.start()
	began := time.Now()
	flood := w.apply(w.namespace, "flood", "flood", "d")
	good := w.apply(w.namespace, "good", "foo", "d")
	w.reported(good, true, "x")
	w.eventually(func() bool { return len(w.writer.of(flood)) > 80 }, "more than the first few lists")
	reports, lists, seconds := len(w.writer.of(flood)), sent.Load(), time.Since(began).Seconds()
	t.Logf("%d lists and %d reports in %.1f s", lists, reports, seconds)
	require.LessOrEqual(t, float64(reports), 60+11*seconds)
	// Some thousand of these small lists are on their way, in buffers.
	require.LessOrEqual(t, float64(lists), 20_000+500*seconds)
	handler.says("d", answer{ids: []string{"x", "y"}})
	w.reported(good, true, "x", "y")
}

func TestTheLastOfManyListsIsTaken(t *testing.T) {
	w := newWorld(t, forever)
	handlerFunc(func(stream grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]) error {
		for i := range 500 {
			if err := stream.Send(&discoveryv0.DiscoverResponse{Devices: []*discoveryv0.Device{{Id: fmt.Sprint(i)}}}); err != nil {
				return err
			}
		}
		<-stream.Context().Done()
		return context.Cause(stream.Context())
	}).serve(t, w, "burst")
	w.start()
	w.reported(w.apply(w.namespace, "burst", "burst", "d"), true, "499")
}

func TestAllDevicesOfTheQuotaAreTakenAndNoMore(t *testing.T) {
	w := newWorld(t, forever)
	const quota = 10_000
	handlerFunc(func(stream grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]) error {
		list := make([]*discoveryv0.Device, quota+1)
		for i := range list {
			list[i] = &discoveryv0.Device{Id: fmt.Sprintf("device-%05d", i), Properties: map[string]string{"URL": fmt.Sprintf("http://device-%05d", i)}}
		}
		if err := stream.Send(&discoveryv0.DiscoverResponse{Devices: list}); err != nil {
			return err
		}
		<-stream.Context().Done()
		return context.Cause(stream.Context())
	}).serve(t, w, "many")
	serving(t, w, "d", "x")
	w.start()
	key := w.apply(w.namespace, "many", "many", "d")
	good := w.apply(w.namespace, "good", "foo", "d")
	w.reported(good, true, "x")
	require.Contains(t, w.problem(key, akriv0.ReasonInvalidDevice).GetMessage(), "10001 devices, at most 10000 are taken")
	reports := w.writer.of(key)
	report := reports[len(reports)-1]
	require.True(t, report.GetComplete())
	// Two of so many ids have the same 24 bits now and then.
	require.InDelta(t, quota, len(report.GetDevices()), 20)
}
