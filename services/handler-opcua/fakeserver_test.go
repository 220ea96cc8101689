package opcua_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/gopcua/opcua/ua"
	"github.com/gopcua/opcua/uacp"
	"github.com/gopcua/opcua/uasc"
	"github.com/stretchr/testify/require"

	"akri.sh/libs/listentest"
)

// fakeServer is an OPC UA server whose responses a test sets.
type fakeServer struct {
	URL  string
	stop func()

	mu           sync.Mutex
	applications []*ua.ApplicationDescription
	onNetwork    []string
	requests     int // of FindServers
}

// serve runs a server at the address until the test ends. It finds one if the address is empty.
func serve(t *testing.T, address string, applications ...*ua.ApplicationDescription) *fakeServer {
	t.Helper()
	if address == "" {
		address = listentest.Address(t)
	}
	f := &fakeServer{URL: "opc.tcp://" + address + "/", applications: applications}
	listener, err := uacp.Listen(t.Context(), f.URL, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept(ctx)
			switch {
			case errors.Is(err, net.ErrClosed):
				return
			case err == nil:
				running.Go(func() { f.serveConn(ctx, conn) })
			}
		}
	})
	f.stop = sync.OnceFunc(func() { cancel(); _ = listener.Close(); running.Wait() })
	t.Cleanup(f.stop)
	return f
}

// set changes the responses. Without onNetwork, the server does not implement FindServersOnNetwork.
func (f *fakeServer) set(onNetwork []string, applications ...*ua.ApplicationDescription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applications, f.onNetwork = applications, onNetwork
}

// requestCount returns the number of FindServers requests.
func (f *fakeServer) requestCount() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

func app(name string, kind ua.ApplicationType, urls ...string) *ua.ApplicationDescription {
	return &ua.ApplicationDescription{
		ApplicationURI: "urn:" + name, ApplicationName: ua.NewLocalizedText(name), ApplicationType: kind, DiscoveryURLs: urls,
	}
}

// serveConn responds until the connection ends.
func (f *fakeServer) serveConn(ctx context.Context, conn *uacp.Conn) {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	channel, err := uasc.NewServerSecureChannel("", conn, &uasc.Config{
		SecurityPolicyURI: ua.SecurityPolicyURINone, SecurityMode: ua.MessageSecurityModeNone, Lifetime: uint32(time.Hour / time.Millisecond),
	}, make(chan error, 1), 1, 1, 1)
	if err != nil {
		return
	}
	for {
		message := channel.Receive(ctx)
		if message.Err != nil {
			_ = conn.Close()
			return
		}
		if response := f.respond(message.Request()); response != nil {
			_ = channel.SendResponseWithContext(ctx, message.RequestID, response)
		}
	}
}

func (f *fakeServer) respond(request ua.Request) ua.Response {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r := request.(type) {
	case *ua.FindServersRequest:
		f.requests++
		return &ua.FindServersResponse{ResponseHeader: header(r, ua.StatusOK), Servers: f.applications}
	case *ua.FindServersOnNetworkRequest:
		if f.onNetwork == nil {
			return &ua.ServiceFault{ResponseHeader: header(r, ua.StatusBadServiceUnsupported)}
		}
		response := &ua.FindServersOnNetworkResponse{ResponseHeader: header(r, ua.StatusOK), LastCounterResetTime: time.Now()}
		for _, url := range f.onNetwork {
			response.Servers = append(response.Servers, &ua.ServerOnNetwork{ServerName: "mdns", DiscoveryURL: url})
		}
		return response
	case *ua.GetEndpointsRequest:
		response := &ua.GetEndpointsResponse{ResponseHeader: header(r, ua.StatusOK)}
		for _, policy := range []string{ua.SecurityPolicyURIBasic256Sha256, ua.SecurityPolicyURINone, ua.SecurityPolicyURIBasic256Sha256} {
			response.Endpoints = append(response.Endpoints, &ua.EndpointDescription{
				EndpointURL: f.URL, Server: f.applications[0], SecurityPolicyURI: policy,
			})
		}
		return response
	default: // gopcua opens and closes the channel
		return nil
	}
}

func header(r ua.Request, result ua.StatusCode) *ua.ResponseHeader {
	return &ua.ResponseHeader{
		Timestamp: time.Now(), RequestHandle: r.Header().RequestHandle, ServiceResult: result,
		ServiceDiagnostics: &ua.DiagnosticInfo{}, AdditionalHeader: ua.NewExtensionObject(nil),
	}
}

// serveTCP calls handle for each connection until the test ends. It returns the URL.
func serveTCP(t *testing.T, handle func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var connections sync.WaitGroup
	connections.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			connections.Go(func() { defer func() { _ = conn.Close() }(); handle(conn) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); connections.Wait() })
	return fmt.Sprintf("opc.tcp://%s/", listener.Addr())
}
