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
)

// fakeServer says over a real connection what a test tells it to.
type fakeServer struct {
	URL string

	mu        sync.Mutex
	known     []*ua.ApplicationDescription
	onNetwork []string
	questions int
	stop      func()
}

// serve answers on a port of 127.0.0.1 until the test ends; port 0: any.
func serve(t *testing.T, port int, known ...*ua.ApplicationDescription) *fakeServer {
	t.Helper()
	if port == 0 {
		port = freePort(t)
	}
	f := &fakeServer{URL: fmt.Sprintf("opc.tcp://127.0.0.1:%d/", port), known: known}
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
				running.Go(func() { f.answer(ctx, conn) })
			}
		}
	})
	f.stop = sync.OnceFunc(func() { cancel(); _ = listener.Close(); running.Wait() })
	t.Cleanup(f.stop)
	return f
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()
	return listener.Addr().(*net.TCPAddr).Port
}

// says changes the answer.
func (f *fakeServer) says(onNetwork []string, known ...*ua.ApplicationDescription) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.known, f.onNetwork = known, onNetwork
}

func (f *fakeServer) asked() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.questions
}

func app(name string, kind ua.ApplicationType, urls ...string) *ua.ApplicationDescription {
	return &ua.ApplicationDescription{
		ApplicationURI: "urn:" + name, ApplicationName: ua.NewLocalizedText(name), ApplicationType: kind, DiscoveryURLs: urls,
	}
}

// answer answers until the connection ends.
func (f *fakeServer) answer(ctx context.Context, conn *uacp.Conn) {
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
		f.questions++
		return &ua.FindServersResponse{ResponseHeader: header(r, ua.StatusOK), Servers: f.known}
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
				EndpointURL: f.URL, Server: f.known[0], SecurityPolicyURI: policy,
			})
		}
		return response
	default: // opening and closing a channel is the library's
		return nil
	}
}

func header(r ua.Request, result ua.StatusCode) *ua.ResponseHeader {
	return &ua.ResponseHeader{
		Timestamp: time.Now(), RequestHandle: r.Header().RequestHandle, ServiceResult: result,
		ServiceDiagnostics: &ua.DiagnosticInfo{}, AdditionalHeader: ua.NewExtensionObject(nil),
	}
}

// odd accepts connections and gives each to do, until the test ends.
func odd(t *testing.T, do func(net.Conn)) string {
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
			connections.Go(func() { defer func() { _ = conn.Close() }(); do(conn) })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); connections.Wait() })
	return fmt.Sprintf("opc.tcp://%s/", listener.Addr())
}
