package viewer_test

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/deploy/samples/camera-broker/internal/viewer"
	"akri.sh/libs/pki"
)

const (
	host  = "cameras.default.svc"
	token = "0123456789abcdef"
)

// brokers are one server at all addresses of 127.0.0.0/8. Each address in cameras is a broker.
type brokers struct {
	port string

	mu       sync.Mutex
	cameras  map[string]string // names by address
	silent   bool              // streams fail
	requests []string          // method, path and authorization
}

// serve starts brokers, with TLS if there is a certificate.
func serve(t *testing.T, cameras map[string]string, certificates ...tls.Certificate) *brokers {
	t.Helper()
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	b := &brokers{port: port, cameras: cameras}
	server := httptest.NewUnstartedServer(b)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	require.NoError(t, server.Listener.Close())
	server.Listener = listener
	if len(certificates) > 0 {
		server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, Certificates: certificates}
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return b
}

func (b *brokers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests = append(b.requests, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization"))
	address, _, _ := net.SplitHostPort(r.Context().Value(http.LocalAddrContextKey).(net.Addr).String())
	name, running := b.cameras[address]
	if !running || b.silent && r.URL.Path == "/stream" {
		panic(http.ErrAbortHandler) // closes the connection
	}
	w.Header().Set(viewer.NameHeader, name)
	_, _ = io.WriteString(w, "video of "+name)
}

// set replaces the brokers.
func (b *brokers) set(cameras map[string]string, silent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cameras, b.silent = cameras, silent
}

func (b *brokers) received() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.requests
}

// resolve is the DNS, with the addresses of the brokers.
func (b *brokers) resolve(ctx context.Context, name string) (addresses []string, err error) {
	if name != host || ctx.Err() != nil {
		return nil, &net.DNSError{Err: "no such host", Name: name, IsNotFound: true}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for address := range b.cameras {
		addresses = append(addresses, address)
	}
	return addresses, nil
}

// handler returns a viewer of the brokers. authorities may be empty.
func (b *brokers) handler(t *testing.T, authorities string) http.Handler {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
	v, err := viewer.New(viewer.Options{
		Host: host, Port: b.port, AuthoritiesFile: authorities, TokenFile: file, Log: slog.New(slog.DiscardHandler), Resolve: b.resolve,
	})
	require.NoError(t, err)
	return v.Handler()
}

// get returns the answer of a viewer to a client that sends the authorization.
func get(ctx context.Context, v http.Handler, path, authorization string) *httptest.ResponseRecorder {
	request := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
	request.Header.Set("Authorization", authorization)
	recorder := httptest.NewRecorder()
	v.ServeHTTP(recorder, request)
	return recorder
}

var stream = regexp.MustCompile(`cameras/([^/"]+)/stream`)

// list returns the names of the cameras in the page.
func list(t *testing.T, v http.Handler) (names []string) {
	t.Helper()
	page := get(t.Context(), v, "/", "")
	require.Equal(t, http.StatusOK, page.Code)
	for _, match := range stream.FindAllStringSubmatch(page.Body.String(), -1) {
		names = append(names, match[1])
	}
	return names
}

// certificate returns a certificate for a name, and the file with its authority.
func certificate(t *testing.T, name string) (tls.Certificate, string) {
	t.Helper()
	authority, err := pki.NewCA(time.Now(), "brokers", time.Hour)
	require.NoError(t, err)
	pair, err := pki.NewServer(time.Now(), authority, "broker", time.Hour, []string{name})
	require.NoError(t, err)
	served, err := tls.X509KeyPair(pair.CertificatePEM, pair.KeyPEM)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, authority.CertificatePEM, 0o600))
	return served, file
}

// TestBrokersAreVerified checks that the viewer sends the token only to brokers with a certificate
// that it verifies. The addresses come from the DNS, which can name others.
func TestBrokersAreVerified(t *testing.T) {
	cameras := map[string]string{"127.0.0.2": "gate"}
	right, file := certificate(t, host)
	_, otherFile := certificate(t, host)
	otherName, fileOfOtherName := certificate(t, "other.default.svc")

	b := serve(t, cameras, right)
	require.Equal(t, []string{"gate"}, list(t, b.handler(t, file)))
	require.Equal(t, []string{"HEAD / Bearer " + token}, b.received())

	for name, b := range map[string]*brokers{"another name": serve(t, cameras, otherName), "plain text": serve(t, cameras)} {
		require.Empty(t, list(t, b.handler(t, fileOfOtherName)), name)
		require.Empty(t, b.received(), name)
	}
	b = serve(t, cameras, right)
	require.Empty(t, list(t, b.handler(t, otherFile)))
	require.Empty(t, b.received(), "another authority")
}

// TestToken checks that the brokers receive the token, and not the credentials of the client.
func TestToken(t *testing.T) {
	b := serve(t, map[string]string{"127.0.0.2": "gate"})
	v := b.handler(t, "")
	answer := get(t.Context(), v, "/cameras/gate/stream", "Basic c2VjcmV0")
	require.Equal(t, "video of gate", answer.Body.String())
	require.Equal(t, []string{"HEAD / Bearer " + token, "GET /stream Bearer " + token}, b.received())
}

// TestBrokersComeAndGo checks that the page follows the brokers, and that it does so at once after
// a stream has failed.
func TestBrokersComeAndGo(t *testing.T) {
	t.Parallel()
	b := serve(t, map[string]string{"127.0.0.2": "gate", "127.0.0.3": "hall"})
	v := b.handler(t, "")
	require.Equal(t, []string{"gate", "hall"}, list(t, v))

	b.set(map[string]string{"127.0.0.3": "hall", "127.0.0.4": "yard"}, false)
	require.Eventually(t, func() bool { return len(list(t, v)) == 2 && list(t, v)[1] == "yard" }, time.Minute, 10*time.Millisecond)
	require.Equal(t, []string{"hall", "yard"}, list(t, v))
	require.Equal(t, "video of yard", get(t.Context(), v, "/cameras/yard/stream", "").Body.String())
	require.Equal(t, http.StatusServiceUnavailable, get(t.Context(), v, "/cameras/gate/stream", "").Code)

	b.set(map[string]string{"127.0.0.3": "hall", "127.0.0.4": "yard"}, true)
	require.Equal(t, http.StatusBadGateway, get(t.Context(), v, "/cameras/hall/stream", "").Code)
	b.set(map[string]string{"127.0.0.4": "yard"}, true)
	require.Equal(t, []string{"yard"}, list(t, v))
}

// TestClientThatLeaves checks that a client that leaves does not hide the cameras from others.
func TestClientThatLeaves(t *testing.T) {
	b := serve(t, map[string]string{"127.0.0.2": "gate"})
	v := b.handler(t, "")
	left, leave := context.WithCancel(t.Context())
	leave()
	get(left, v, "/", "")
	require.Equal(t, []string{"gate"}, list(t, v))
}

func TestAuthoritiesFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	_, err := viewer.New(viewer.Options{AuthoritiesFile: file})
	require.ErrorContains(t, err, "CAMERAS_CA_FILE: ")
	require.NoError(t, os.WriteFile(file, []byte("text"), 0o600))
	_, err = viewer.New(viewer.Options{AuthoritiesFile: file})
	require.EqualError(t, err, "CAMERAS_CA_FILE="+file+": has no certificate in PEM")
}
