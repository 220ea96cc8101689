package serve_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"akri.sh/deploy/samples/opcua-broker/internal/serve"
)

// running is a server that runs until the test ends.
type running struct {
	host    string
	address string // with the scheme
	ready   atomic.Bool
	client  *http.Client
	creds   credentials.TransportCredentials
}

func run(t *testing.T, settings serve.Settings, roots *x509.CertPool) *running {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	host := listener.Addr().String()
	r := &running{host: host, address: "http://" + host, creds: insecure.NewCredentials()}
	transport := &http.Transport{DisableKeepAlives: true}
	if roots != nil {
		r.address = "https://" + host
		transport.TLSClientConfig = &tls.Config{RootCAs: roots}
		r.creds = credentials.NewClientTLSFromCert(roots, "")
	}
	r.client = &http.Client{Transport: transport}
	server := grpc.NewServer()
	healthpb.RegisterHealthServer(server, health.NewServer())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- serve.Server{
			Settings: settings, GRPC: server, Refused: prometheus.NewCounter(prometheus.CounterOpts{}),
			HTTP: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "content") }),
			Ready: func() error {
				if !r.ready.Load() {
					return errors.New("no values")
				}
				return nil
			},
		}.Run(ctx, listener)
	}()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return r
}

func (r *running) get(t *testing.T, path, authorization string) (code int, body string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, r.address+path, nil)
	require.NoError(t, err)
	request.Header.Set("Authorization", authorization)
	response, err := r.client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

func (r *running) call(t *testing.T, authorization string) codes.Code {
	t.Helper()
	conn, err := grpc.NewClient(r.host, grpc.WithTransportCredentials(r.creds))
	require.NoError(t, err)
	defer conn.Close()
	ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", authorization)
	_, err = healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{})
	return status.Code(err)
}

func TestPlainText(t *testing.T) {
	server := run(t, serve.Settings{AllowPlainText: true}, nil)
	code, body := server.get(t, "/", "")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "content", body)
	require.Equal(t, codes.OK, server.call(t, ""))
	code, body = server.get(t, "/readyz", "")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "no values\n", body)
	code, _ = server.get(t, "/healthz", "")
	require.Equal(t, http.StatusOK, code, "a device that is away does not restart the broker")
	server.ready.Store(true)
	code, _ = server.get(t, "/readyz", "")
	require.Equal(t, http.StatusOK, code)
}

func TestTokenAndTLS(t *testing.T) {
	directory := t.TempDir()
	settings := serve.Settings{
		CertFile: filepath.Join(directory, "tls.crt"), KeyFile: filepath.Join(directory, "tls.key"), TokenFile: filepath.Join(directory, "token"),
	}
	roots := x509.NewCertPool()
	roots.AddCert(writeCertificate(t, settings))
	require.NoError(t, os.WriteFile(settings.TokenFile, []byte("one\n"), 0o600))
	server := run(t, settings, roots)

	for authorization, allowed := range map[string]bool{
		"Bearer one": true, "bearer one": true,
		"": false, "one": false, "Bearer": false, "Bearer ": false, "Bearer two": false, "Basic one": false,
	} {
		code, _ := server.get(t, "/", authorization)
		require.Equal(t, allowed, code == http.StatusOK, "%q: %d", authorization, code)
		called := server.call(t, authorization)
		require.Equal(t, allowed, called == codes.OK, "%q: %s", authorization, called)
		code, _ = server.get(t, "/healthz", authorization)
		require.Equal(t, http.StatusOK, code, "the kubelet has no token")
	}
	require.Equal(t, codes.Unauthenticated, server.call(t, "Bearer two"))

	// The files of a mounted Secret change.
	require.NoError(t, os.WriteFile(settings.TokenFile, []byte("two"), 0o600))
	code, _ := server.get(t, "/", "Bearer one")
	require.Equal(t, http.StatusUnauthorized, code)
	code, _ = server.get(t, "/", "Bearer two")
	require.Equal(t, http.StatusOK, code)
	require.NoError(t, os.Remove(settings.TokenFile))
	code, _ = server.get(t, "/", "Bearer ")
	require.Equal(t, http.StatusInternalServerError, code, "without its token a broker serves nothing")
	roots.AddCert(writeCertificate(t, settings))
	code, _ = server.get(t, "/healthz", "")
	require.Equal(t, http.StatusOK, code)

	response, err := http.Get("http://" + server.host + "/healthz")
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusBadRequest, response.StatusCode, "plain text is refused")
}

// writeCertificate writes a new certificate.
func writeCertificate(t *testing.T, settings serve.Settings) *x509.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: serial, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(settings.CertFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	require.NoError(t, os.WriteFile(settings.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}), 0o600))
	certificate, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return certificate
}

func TestSettings(t *testing.T) {
	directory := t.TempDir()
	settings := serve.Settings{CertFile: filepath.Join(directory, "tls.crt"), KeyFile: filepath.Join(directory, "tls.key")}
	writeCertificate(t, settings)
	token := filepath.Join(directory, "token")
	require.NoError(t, os.WriteFile(token, []byte("\n"), 0o600))
	for name, c := range map[string]struct {
		environment map[string]string
		err         string
	}{
		"plain text": {map[string]string{"ALLOW_PLAIN_TEXT": "true"}, ""},
		"TLS without a token": {map[string]string{"TLS_CERT_FILE": settings.CertFile, "TLS_KEY_FILE": settings.KeyFile},
			"TOKEN_FILE is not set: set it, or ALLOW_PLAIN_TEXT=true"},
		"certificate without a key": {map[string]string{"TLS_CERT_FILE": settings.CertFile, "ALLOW_PLAIN_TEXT": "true"},
			"TLS_CERT_FILE and TLS_KEY_FILE: set both"},
		"empty token":         {map[string]string{"TOKEN_FILE": token, "ALLOW_PLAIN_TEXT": "true"}, "TOKEN_FILE: " + token + " is empty"},
		"missing certificate": {map[string]string{"TLS_CERT_FILE": "/missing", "TLS_KEY_FILE": settings.KeyFile, "ALLOW_PLAIN_TEXT": "true"}, "TLS_CERT_FILE and TLS_KEY_FILE: open /missing: no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := serve.Read(func(name string) string { return c.environment[name] })
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, c.err)
		})
	}
}
