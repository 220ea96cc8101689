package broker_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"akri.sh/libs/broker"
	"akri.sh/libs/pki"
)

const token = "0123456789abcdef"

func TestProperty(t *testing.T) {
	for name, c := range map[string]struct {
		environ []string
		want    string
	}{
		"plain":                  {[]string{"URL=a", "URL_8120FE=b"}, "a"},
		"suffixed":               {[]string{"URL_8120FE=b"}, "b"},
		"several":                {[]string{"URL_FFFFFF=c", "URL_8120FE=b"}, "b"},
		"long digest":            {[]string{"URL_8120FEXABCDEF=b"}, "b"},
		"other names":            {[]string{"URL_8120F=b", "URL_8120fe=b", "URL2=b", "XURL=b", "URL_PATH=b"}, ""},
		"empty is not set":       {[]string{"URL=", "URL_8120FE=b"}, "b"},
		"value with equals sign": {[]string{"URL=a=b"}, "a=b"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, broker.Property(c.environ, "URL")) })
	}
}

// TestDevicesChangeNoSettings checks that a property of a device is not read as a setting.
func TestDevicesChangeNoSettings(t *testing.T) {
	for name, c := range map[string]struct {
		environ           []string
		setting, property string
	}{
		"of the Pod":                    {[]string{"NAME=a"}, "a", "a"},
		"of a device":                   {[]string{"NAME=a", "NAME_8120FE=a"}, "", "a"},
		"of a device, suffixed only":    {[]string{"NAME_8120FE=a"}, "", "a"},
		"of one of two devices":         {[]string{"NAME_8120FE=b", "NAME=a", "NAME_FFFFFF=a"}, "", "a"},
		"of the Pod instead of devices": {[]string{"NAME=a", "NAME_8120FE=b"}, "a", "a"},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.setting, broker.Getenv(c.environ)("NAME"))
			require.Equal(t, c.property, broker.Getenv(c.environ, "NAME")("NAME"))
		})
	}
}

// name is that of the server in its certificate.
const name = "camera-svc.default.svc"

// files writes a certificate and a token. It returns the settings, and the certificates that verify
// the server.
func files(t *testing.T) (broker.Server, *x509.CertPool) {
	t.Helper()
	dir, now := t.TempDir(), time.Now()
	ca, err := pki.NewCA(now, "test", time.Hour)
	require.NoError(t, err)
	pair, err := pki.NewServer(now, ca, "server", time.Hour, []string{name})
	require.NoError(t, err)
	authorities := x509.NewCertPool()
	authorities.AddCert(ca.Leaf)
	s := broker.Server{CertFile: filepath.Join(dir, "tls.crt"), KeyFile: filepath.Join(dir, "tls.key"), TokenFile: filepath.Join(dir, "token")}
	write(t, s.CertFile, string(pair.CertificatePEM))
	write(t, s.KeyFile, string(pair.KeyPEM))
	write(t, s.TokenFile, token+"\n")
	return s, authorities
}

func write(t *testing.T, file, content string) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
}

func TestReadServer(t *testing.T) {
	s, _ := files(t)
	short := filepath.Join(t.TempDir(), "token")
	write(t, short, "short")
	const otherwise = "; or set ALLOW_PLAIN_TEXT=true, with which all clients that reach the Pod can read its data"
	for name, c := range map[string]struct {
		environment map[string]string
		want        broker.Server
		err         string
	}{
		"TLS and token":          {environment: map[string]string{"TLS_CERT_FILE": s.CertFile, "TLS_KEY_FILE": s.KeyFile, "TOKEN_FILE": s.TokenFile}, want: s},
		"plain text":             {environment: map[string]string{"ALLOW_PLAIN_TEXT": "true"}, want: broker.Server{AllowPlainText: true}},
		"plain text and a token": {environment: map[string]string{"ALLOW_PLAIN_TEXT": "true", "TOKEN_FILE": s.TokenFile}, want: broker.Server{AllowPlainText: true, TokenFile: s.TokenFile}},
		"nothing": {err: "TLS_CERT_FILE and TLS_KEY_FILE are not set: mount a Secret with a certificate" + otherwise +
			"\nTOKEN_FILE is not set: mount a Secret with a token" + otherwise},
		"no key": {
			environment: map[string]string{"TLS_CERT_FILE": s.CertFile, "TOKEN_FILE": s.TokenFile},
			err:         "TLS_CERT_FILE and TLS_KEY_FILE must both be set",
		},
		"wrong values": {
			environment: map[string]string{"TLS_CERT_FILE": "/nowhere", "TLS_KEY_FILE": "/nowhere", "TOKEN_FILE": short, "ALLOW_PLAIN_TEXT": "yes"},
			err: `ALLOW_PLAIN_TEXT="yes": must be true or false
TLS_CERT_FILE=/nowhere, TLS_KEY_FILE=/nowhere: open /nowhere: no such file or directory
TOKEN_FILE=` + short + ": the token has 5 characters, at least 16 are needed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := broker.ReadServer(func(name string) string { return c.environment[name] })
			if c.err != "" {
				require.EqualError(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

// serve serves a page and an API.
func serve(t *testing.T, s broker.Server) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	api := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(api, health.NewServer())
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "page") })
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, listener, func() error { return nil }, page, api) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
	return listener.Addr().String()
}

// TestToken tries credentials for HTTP 1, HTTP 2 and gRPC.
func TestToken(t *testing.T) {
	s, authorities := files(t)
	address := serve(t, s)
	config := &tls.Config{RootCAs: authorities, ServerName: name, MinVersion: tls.VersionTLS12}
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	require.NoError(t, err)
	defer conn.Close()
	for header, allowed := range map[string]bool{
		"":                        false,
		"Bearer " + token:         true,
		"bearer  " + token:        true,
		"Bearer " + token + "0":   false,
		"Bearer " + token[1:]:     false,
		"Bearer":                  false,
		"Token " + token:          false,
		token:                     false,
		basic("anybody", token):   true,
		basic("", token):          true,
		basic(token, ""):          false,
		basic("anybody", "wrong"): false,
		"Basic !":                 false,
	} {
		for _, http2 := range []bool{false, true} {
			code, body := fetch(t, &http.Transport{TLSClientConfig: config.Clone(), ForceAttemptHTTP2: http2}, "https://"+address+"/", header)
			if allowed {
				require.Equal(t, "page", body, header)
			} else {
				require.Equal(t, http.StatusUnauthorized, code, header)
				require.NotContains(t, body, "page")
			}
		}
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", header)
		_, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{})
		if allowed {
			require.NoError(t, err, header)
		} else {
			require.Equal(t, codes.Unauthenticated, status.Code(err), header)
		}
	}
	_, body := fetch(t, &http.Transport{TLSClientConfig: config}, "https://"+address+"/healthz", "")
	require.Equal(t, "ok\n", body, "the kubelet has no token")

	const renewed = "fedcba9876543210"
	write(t, s.TokenFile, renewed)
	code, _ := fetch(t, &http.Transport{TLSClientConfig: config}, "https://"+address+"/", "Bearer "+token)
	require.Equal(t, http.StatusUnauthorized, code, "a token that was replaced")
	require.NoError(t, os.Remove(s.TokenFile))
	code, _ = fetch(t, &http.Transport{TLSClientConfig: config}, "https://"+address+"/", "Bearer ")
	require.Equal(t, http.StatusUnauthorized, code, "without a token no client is allowed")
}

// TestPlainText checks that HTTP and gRPC share the port without TLS too.
func TestPlainText(t *testing.T) {
	address := serve(t, broker.Server{AllowPlainText: true})
	_, body := fetch(t, &http.Transport{}, "http://"+address+"/", "")
	require.Equal(t, "page", body)
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	_, err = grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	require.NoError(t, err)
}

// maxConnections is the number of connections that a server has.
const maxConnections = 128

// A client without a token opens as many connections as it can, and sends nothing. The server
// answers other clients and the kubelet.
func TestIdleConnections(t *testing.T) {
	s, authorities := files(t)
	address := serve(t, s)
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	for range 2 * maxConnections {
		conn, err := dialer.DialContext(t.Context(), "tcp", address)
		require.NoError(t, err)
		defer conn.Close()
	}

	// The server would otherwise end the idle connections after 32 s.
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authorities, ServerName: name, MinVersion: tls.VersionTLS12}, TLSHandshakeTimeout: 20 * time.Second}
	_, body := fetch(t, transport, "https://"+address+"/healthz", "")
	require.Equal(t, "ok\n", body)
	_, body = fetch(t, transport, "https://"+address+"/", "Bearer "+token)
	require.Equal(t, "page", body)
}

// TestMaxConnections opens as many connections as a server has, and one more of the same address,
// which the server closes. It answers another one after a client has left.
func TestMaxConnections(t *testing.T) {
	address := serve(t, broker.Server{AllowPlainText: true})
	connect := func() net.Conn {
		conn, err := net.Dial("tcp", address)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		_, err = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: broker\r\n\r\n")
		require.NoError(t, err)
		return conn
	}
	answer := func(conn net.Conn, patience time.Duration) error {
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
		_, err := http.ReadResponse(bufio.NewReader(conn), nil)
		return err
	}
	first := connect()
	require.NoError(t, answer(first, time.Minute))
	for range maxConnections - 1 {
		require.NoError(t, answer(connect(), time.Minute))
	}

	require.Error(t, answer(connect(), time.Minute))
	require.NoError(t, first.Close())
	require.Eventually(t, func() bool { return answer(connect(), time.Minute) == nil }, time.Minute, 10*time.Millisecond)
}

func basic(user, password string) string {
	r := &http.Request{Header: http.Header{}}
	r.SetBasicAuth(user, password)
	return r.Header.Get("Authorization")
}

func fetch(t *testing.T, transport *http.Transport, url, authorization string) (code int, body string) {
	t.Helper()
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	if authorization != "" {
		request.Header.Set("Authorization", authorization)
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(content)
}
