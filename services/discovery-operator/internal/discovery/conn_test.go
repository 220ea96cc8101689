package discovery_test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap/zaptest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"akri.sh/libs/broadcast"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
	discoveryv0 "akri.sh/proto/v0"
	"akri.sh/services/discovery-operator/internal/discovery"
	"akri.sh/services/discovery-operator/internal/inventory"
)

// silentHandler behaves like the handlers of upstream Akri: it sends no empty first list. It sends
// the lists of the channel.
type silentHandler struct {
	discoveryv0.UnimplementedDiscoveryHandlerServer
	calls atomic.Int32
	lists chan []string
	stop  chan struct{}
}

func (h *silentHandler) Discover(_ *discoveryv0.DiscoverRequest, stream grpc.ServerStreamingServer[discoveryv0.DiscoverResponse]) error {
	h.calls.Add(1)
	for {
		select {
		case ids := <-h.lists:
			response := &discoveryv0.DiscoverResponse{}
			for _, id := range ids {
				response.Devices = append(response.Devices, &discoveryv0.Device{Id: id})
			}
			if err := stream.Send(response); err != nil {
				return err
			}
		case <-h.stop:
			return nil
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// handlerInMemory is a handler with an unmodified gRPC server. While frozen is true, it accepts
// connections and sends nothing.
type handlerInMemory struct {
	silentHandler
	frozen  atomic.Bool
	refused atomic.Bool
	dials   atomic.Int32
	conn    *discovery.Conn
	session *discovery.Session
}

func startInMemory(t *testing.T, kind registrarv1.EndpointType) *handlerInMemory {
	t.Helper()
	h := &handlerInMemory{silentHandler: silentHandler{lists: make(chan []string), stop: make(chan struct{})}}
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	discoveryv0.RegisterDiscoveryHandlerServer(server, &h.silentHandler)
	go func() { _ = server.Serve(listener) }()
	handler := &registrarv1.Handler{Name: "foo", Endpoint: "192.0.2.1:1000", EndpointType: kind}
	if kind == registrarv1.EndpointType_ENDPOINT_TYPE_UDS {
		handler.Endpoint = "/h.sock"
	}
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		h.dials.Add(1)
		if h.refused.Load() {
			return nil, errors.New("connection refused")
		}
		if h.frozen.Load() {
			client, silent := net.Pipe()
			go func() { _, _ = io.Copy(io.Discard, silent) }()
			return client, nil
		}
		return listener.DialContext(ctx)
	}
	var err error
	changed := broadcast.NewSignal()
	h.conn, err = discovery.Dial(t.Context(), discovery.Target{
		Handler: handler, ProbeInterval: discovery.ProbeInterval, Dial: dial,
	}, prometheus.NewRegistry(), changed.Notify)
	require.NoError(t, err)
	log := zaptest.NewLogger(t)
	discoverer := &discovery.Discoverer{
		Policy: inventory.Policy{MaxDevices: 1000},
		Log:    log, Metrics: discovery.NewMetrics(prometheus.NewRegistry(), false), Grace: grace,
	}
	h.session = discoverer.Start(t.Context(), discovery.Options{
		Handler: handler, Conn: h.conn, Query: discovery.Query{Namespace: "default", Name: "cameras", Handler: "foo"}, Notify: changed.Notify,
	})
	t.Cleanup(func() {
		h.session.Stop()
		h.conn.Close()
		server.Stop()
	})
	return h
}

func (h *handlerInMemory) state() discovery.State { return h.conn.Status(time.Now()).State }

// Probes do not disturb a silent handler with the default settings of gRPC: it gets one request.
func TestProbesAreNotPunished(t *testing.T) {
	for name, kind := range map[string]registrarv1.EndpointType{
		"unix": registrarv1.EndpointType_ENDPOINT_TYPE_UDS, "network": registrarv1.EndpointType_ENDPOINT_TYPE_NETWORK,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := startInMemory(t, kind)
				<-time.After(15*time.Minute + time.Second)
				require.Equal(t, int32(1), h.calls.Load())
				require.Equal(t, discovery.Reachable, h.state())
				require.Equal(t, int32(1+60), h.dials.Load(), "one connection and a probe each 15 seconds")
			})
		})
	}
}

// A handler that does not respond is Unreachable within a minute, and Reachable when it responds.
func TestFrozenHandler(t *testing.T) {
	for name, kind := range map[string]registrarv1.EndpointType{
		"unix": registrarv1.EndpointType_ENDPOINT_TYPE_UDS, "network": registrarv1.EndpointType_ENDPOINT_TYPE_NETWORK,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := startInMemory(t, kind)
				h.lists <- []string{"x"}
				<-time.After(time.Minute)
				h.frozen.Store(true)
				<-time.After(15 * time.Second)
				require.Equal(t, discovery.Reachable, h.state(), "one probe is not enough")
				<-time.After(25 * time.Second)
				require.Equal(t, discovery.Unreachable, h.state())
				require.Len(t, h.session.Result().Devices, 1)
				h.frozen.Store(false)
				<-time.After(15 * time.Second)
				require.Equal(t, discovery.Reachable, h.state())
				require.Equal(t, int32(2), h.calls.Load())
			})
		})
	}
}

// A handler whose socket file was removed keeps its stream. A network endpoint that refuses
// connections is lost: its node may have restarted without closing them.
func TestRefusedProbes(t *testing.T) {
	for kind, state := range map[registrarv1.EndpointType]discovery.State{
		registrarv1.EndpointType_ENDPOINT_TYPE_UDS:     discovery.Reachable,
		registrarv1.EndpointType_ENDPOINT_TYPE_NETWORK: discovery.Unreachable,
	} {
		synctest.Test(t, func(t *testing.T) {
			h := startInMemory(t, kind)
			h.lists <- []string{"x"}
			h.refused.Store(true)
			<-time.After(time.Minute)
			require.Equal(t, state, h.state())
		})
	}
}

// A handler that registers again is connected at once. The back-off of the connection is 5 seconds
// then.
func TestReconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := startInMemory(t, registrarv1.EndpointType_ENDPOINT_TYPE_NETWORK)
		h.refused.Store(true)
		<-time.After(time.Minute + time.Second)
		require.Equal(t, discovery.Unreachable, h.state())
		h.refused.Store(false)
		h.conn.Reconnect()
		h.session.Retry()
		synctest.Wait()
		require.Equal(t, discovery.Reachable, h.state())
		h.lists <- []string{"x"}
		synctest.Wait()
		require.Len(t, h.session.Result().Devices, 1)

		connections := h.dials.Load()
		h.conn.Reconnect()
		synctest.Wait()
		require.Equal(t, connections, h.dials.Load(), "an open connection is kept")
	})
}

// The ClientConn changes the map that ResetConnectBackoff reads right after Dial. The race detector
// finds the two.
func TestReconnectAfterDial(t *testing.T) {
	for range 100 {
		conn, err := discovery.Dial(t.Context(), discovery.Target{
			Handler:       &registrarv1.Handler{Name: "foo", Endpoint: "/h.sock"},
			ProbeInterval: discovery.ProbeInterval,
			Dial:          func(context.Context, string) (net.Conn, error) { return nil, errors.New("connection refused") },
		}, prometheus.NewRegistry(), func() {})
		require.NoError(t, err)
		conn.Reconnect()
		conn.Close()
	}
}

// A handler has 5 seconds until its socket must exist.
func TestAnswerTime(t *testing.T) {
	require.Equal(t, 5*time.Second, discovery.Target{ProbeInterval: discovery.ProbeInterval}.AnswerTime())
}
