package webhook_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"akri.sh/services/broker-controller/internal/admission"
	"akri.sh/services/broker-controller/internal/webhook"
)

// pipes is a listener whose connections have no buffer: what a client does not read, the server
// does not send. That is the smallest receive buffer that a client can have.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
}

// Accept implements net.Listener.
func (p pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accepted:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (p pipes) Close() error {
	close(p.closed)
	return nil
}

// Addr implements net.Listener.
func (pipes) Addr() net.Addr { return source("server") }

// source is the address of a client or the server.
type source string

// Network implements net.Addr.
func (source) Network() string { return "tcp" }

// String implements net.Addr.
func (s source) String() string { return string(s) + ":1" }

// conn is the connection that the server has. Its end is known when ended is closed.
type conn struct {
	net.Conn

	client source
	ended  chan struct{}
}

// RemoteAddr implements net.Conn.
func (c conn) RemoteAddr() net.Addr { return c.client }

// Close implements net.Conn. A server calls it once.
func (c conn) Close() error {
	close(c.ended)
	return c.Conn.Close()
}

// dial returns a connection of the address, after the handshake, and a channel that is closed when
// the server has closed it. The server sends nothing between the handshake of TLS 1.2 and its
// response.
func (p pipes) dial(t *testing.T, address source) (client *tls.Conn, ended <-chan struct{}) {
	t.Helper()
	plain, ended := p.connect(address)
	client = tls.Client(plain, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}})
	require.NoError(t, client.HandshakeContext(t.Context()))
	require.Equal(t, "http/1.1", client.ConnectionState().NegotiatedProtocol, "with HTTP/2 a client could read no response of many streams")
	return client, ended
}

// connect is dial without the handshake.
func (p pipes) connect(address source) (client net.Conn, ended <-chan struct{}) {
	client, server := net.Pipe()
	accepted := conn{server, address, make(chan struct{})}
	p.accepted <- accepted
	return client, accepted.ended
}

// hostile is what a client sends before it stops to read. made is whether that makes a review.
var hostile = map[string]struct {
	request func(review string) string
	made    bool
}{
	"HTTP/1.1": {func(review string) string {
		return fmt.Sprintf("POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(review), review)
	}, true},
	// The preface of HTTP/2, a frame SETTINGS with INITIAL_WINDOW_SIZE=0, and the frames HEADERS
	// (":method POST", ":scheme https", ":path /validate", ":authority x") and DATA.
	"HTTP/2 with a window of 0": {func(review string) string {
		headers := "\x83\x87\x04\x09/validate\x01\x01x"
		frame := func(kind, flags, stream byte, payload string) string {
			length := len(payload)
			return string([]byte{byte(length >> 16), byte(length >> 8), byte(length), kind, flags, 0, 0, 0, stream}) + payload
		}
		return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, "\x00\x04\x00\x00\x00\x00") +
			frame(1, 4, 1, headers) + frame(0, 1, 1, review)
	}, false},
}

// TestClientsThatReadNoResponse has 31 clients of one address and one of each of three others that
// send a complete review and read nothing. Others are reviewed meanwhile, from the same address,
// too. The server then ends the connections of those that read nothing: after 15 s, and 5 s in
// which TLS tries to send its end.
func TestClientsThatReadNoResponse(t *testing.T) {
	data, _, _ := renewed(t, time.Now(), nil, names)
	review := reviewWithLongResponse(t)

	for name, attack := range hostile {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reviews := make(chan bool, 100)
				p := pipes{make(chan net.Conn), make(chan struct{})}
				defer serve(t, data, p, reviews)()

				var ended []<-chan struct{}
				clients := append(slices.Repeat([]source{"192.0.2.1"}, 31), "192.0.2.2", "192.0.2.3", "192.0.2.4")
				for _, address := range clients {
					client, end := p.dial(t, address)
					ended = append(ended, end)
					// The server may refuse the request before it has received all of it.
					go func() { _, _ = io.WriteString(client, attack.request(string(review))) }()
				}
				synctest.Wait()
				if attack.made {
					require.Len(t, reviews, len(clients), "all reviews have been made")
				} else {
					require.Empty(t, reviews, "no review has been made")
				}

				began := time.Now()
				for _, address := range []source{"192.0.2.1", "192.0.2.2", "198.51.100.1"} {
					client, _ := p.dial(t, address)
					require.Greater(t, len(post(t, client, review)), 4<<10)
				}
				require.Equal(t, began, time.Now(), "no review has waited")

				for _, end := range ended {
					<-end // the test fails with a deadlock if the server waits forever
				}
				require.LessOrEqual(t, time.Since(began), 20*time.Second)
			})
		})
	}
}

// TestSlowSenders has 31 clients of one address and one of each of three others that send a byte of
// a review a second. Others are reviewed meanwhile. The server ends the connections of slow senders
// in time.
func TestSlowSenders(t *testing.T) {
	data, _, _ := renewed(t, time.Now(), nil, names)
	review := reviewWithLongResponse(t)

	synctest.Test(t, func(t *testing.T) {
		reviews := make(chan bool, 100)
		p := pipes{make(chan net.Conn), make(chan struct{})}
		stop := serve(t, data, p, reviews)

		began := time.Now()
		var ended []<-chan struct{}
		for _, address := range append(slices.Repeat([]source{"192.0.2.1"}, 31), "192.0.2.2", "192.0.2.3", "192.0.2.4") {
			client, end := p.dial(t, address)
			ended = append(ended, end)
			go func() { _, _ = io.Copy(io.Discard, client) }()
			go func() {
				_, err := fmt.Fprintf(client, "POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", len(review))
				for i := 0; err == nil && i < len(review); i++ {
					_, err = client.Write(review[i : i+1])
					<-time.After(time.Second)
				}
			}()
		}
		synctest.Wait()

		for _, address := range []source{"192.0.2.1", "192.0.2.2", "198.51.100.1"} {
			client, _ := p.dial(t, address)
			require.Greater(t, len(post(t, client, review)), 4<<10)
		}
		require.Equal(t, began, time.Now(), "no review has waited")

		for _, end := range ended {
			<-end
		}
		require.Less(t, time.Since(began), 6*time.Second)
		require.Len(t, reviews, 3, "reviews of the others only")
		stop()
	})
}

// TestSilentClients has clients that stop to send at each point of a connection, or that keep it
// for a second request. The server ends each connection after the time that docs/security.md
// states.
func TestSilentClients(t *testing.T) {
	data, _, _ := renewed(t, time.Now(), nil, names)
	review := reviewWithLongResponse(t)
	header := fmt.Sprintf("POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", len(review))

	for name, test := range map[string]struct {
		sent        string
		noHandshake bool
		reviewed    bool
		limit       time.Duration
	}{
		"no handshake":     {noHandshake: true, limit: 5 * time.Second},
		"no request":       {limit: 5 * time.Second},
		"half a header":    {sent: header[:20], limit: 5 * time.Second},
		"no body":          {sent: header, limit: 5 * time.Second},
		"half a body":      {sent: header + string(review[:len(review)/2]), limit: 5 * time.Second},
		"a second request": {sent: header + string(review), reviewed: true, limit: 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reviews := make(chan bool, 1)
				p := pipes{make(chan net.Conn), make(chan struct{})}
				defer serve(t, data, p, reviews)()

				began := time.Now()
				client, ended := p.connect("192.0.2.1")
				if !test.noHandshake {
					client, ended = p.dial(t, "192.0.2.1")
				}
				go func() { _, _ = io.Copy(io.Discard, client) }()
				go func() { _, _ = io.WriteString(client, test.sent) }()

				<-ended
				require.LessOrEqual(t, time.Since(began), test.limit)
				require.Equal(t, test.reviewed, len(reviews) == 1)
			})
		})
	}
}

// reviewWithLongResponse returns a review with many warnings, of names that are not those of
// environment variables. net/http keeps a response of less than 4 KiB until the handler returns, so
// that a client could not stop the handler with it.
func reviewWithLongResponse(t *testing.T) []byte {
	t.Helper()
	properties := map[string]string{}
	for i := range 50 {
		properties[fmt.Sprint(i, strings.Repeat("x", 1000))] = ""
	}
	object, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"name": "echo"},
		"spec":     map[string]any{"discoveryHandler": map[string]any{"name": "lamp"}, "brokerProperties": properties},
	})
	require.NoError(t, err)

	review, err := json.Marshal(admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{
		UID: "1", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: object},
	}})
	require.NoError(t, err)
	return review
}

// serve starts the webhook. stop ends it.
func serve(t *testing.T, data map[string][]byte, listener net.Listener, reviews chan<- bool) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	options := webhook.Options{
		Handler: admission.Handler(admission.Reviewer{}, zap.NewNop(), func(allowed bool) { reviews <- allowed }), Log: zap.NewNop(),
		RefusedConnections: prometheus.NewCounter(prometheus.CounterOpts{Name: "refused"}),
	}
	go func() { served <- webhook.Serve(ctx, options, data, listener) }()
	return func() {
		cancel()
		require.NoError(t, <-served)
	}
}

// post sends a review and returns the text of the response, as an API server does.
func post(t *testing.T, client net.Conn, review []byte) []byte {
	t.Helper()
	transport := &http.Transport{DialTLSContext: func(context.Context, string, string) (net.Conn, error) { return client, nil }}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://x/validate", bytes.NewReader(review))
	require.NoError(t, err)
	response, err := transport.RoundTrip(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return text
}
