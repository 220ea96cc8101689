package rpc_test

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"akri.sh/libs/pki"
	"akri.sh/libs/rpc"
	"akri.sh/libs/rpctest"
)

// secured is a server with TLS that records the last token it received.
type secured struct {
	address     string
	certificate atomic.Pointer[tls.Certificate]
	token       atomic.Value
}

func serveSecured(t *testing.T) *secured {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &secured{address: listener.Addr().String()}
	require.NoError(t, listener.Close())
	rpctest.ServeAt(t, s.address, none,
		grpc.Creds(credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return s.certificate.Load(), nil
		}})),
		grpc.ChainUnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
			s.token.Store(metadata.ValueFromIncomingContext(ctx, "authorization"))
			return handler(ctx, request)
		}))
	return s
}

// issue makes the server use a certificate of a new CA, which it returns.
func (s *secured) issue(t *testing.T, name string) []byte {
	t.Helper()
	ca, err := pki.NewCA(time.Now(), "ca", time.Hour)
	require.NoError(t, err)
	server, err := pki.NewServer(time.Now(), ca, "server", time.Hour, []string{name})
	require.NoError(t, err)
	s.certificate.Store(&server.Certificate)
	return ca.CertificatePEM
}

func check(t *testing.T, s *secured, identity rpc.Identity) error {
	t.Helper()
	options, err := identity.DialOptions("localhost:1")
	require.NoError(t, err)
	conn, err := rpc.Dial(s.address, prometheus.NewRegistry(), append(options, grpc.WithAuthority("writer"))...)
	require.NoError(t, err)
	defer conn.Close()
	_, err = healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
	return err
}

func TestIdentityFilesAreReadAgain(t *testing.T) {
	s := serveSecured(t)
	dir := t.TempDir()
	identity := rpc.Identity{CAFile: filepath.Join(dir, "ca.crt"), TokenFile: filepath.Join(dir, "token")}
	write := func(file, text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	fails := func(code codes.Code, message string) {
		t.Helper()
		err := check(t, s, identity)
		require.Equal(t, code, status.Code(err), err)
		require.ErrorContains(t, err, message)
	}
	ca := s.issue(t, "writer")
	fails(codes.Unavailable, "read CA certificates: open "+identity.CAFile+": no such file or directory")
	write(identity.CAFile, "no PEM")
	fails(codes.Unavailable, identity.CAFile+" has no certificate in PEM")
	write(identity.CAFile, string(ca))
	fails(codes.Unavailable, "open "+identity.TokenFile+": no such file or directory")
	write(identity.TokenFile, "no JWT")
	fails(codes.Unauthenticated, `token file "`+identity.TokenFile+`"`)

	claims := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"exp":%d}`, time.Now().Add(time.Hour).Unix()))
	write(identity.TokenFile, "e30."+claims+".c2ln")
	require.NoError(t, check(t, s, identity))
	require.Equal(t, []string{"Bearer e30." + claims + ".c2ln"}, s.token.Load())

	ca = s.issue(t, "writer")
	fails(codes.Unavailable, "certificate signed by unknown authority")
	write(identity.CAFile, string(ca))
	require.NoError(t, check(t, s, identity))
	write(identity.CAFile, string(s.issue(t, "another")))
	fails(codes.Unavailable, "not writer")
}

func TestIdentityIsComplete(t *testing.T) {
	options, err := rpc.Identity{}.DialOptions("unix:///s.sock")
	require.NoError(t, err)
	require.Empty(t, options, "plain text")
	for _, identity := range []rpc.Identity{{}, {CAFile: "ca.crt"}, {TokenFile: "token"}} {
		for _, address := range []string{"localhost:1", "127.0.0.1:1", "dns:///akri-instance-writer:9443", "akri-instance-writer:9443", ""} {
			_, err = identity.DialOptions(address)
			require.ErrorContains(t, err, "set both, or none with a Unix socket as address")
		}
	}
}

func TestKeepWarnsOnceAboutRepeatedFailures(t *testing.T) {
	core, logged := observer.New(zap.WarnLevel)
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	rpc.Keep(ctx, zap.New(core), time.Millisecond, func(context.Context, func()) error {
		if calls++; calls == 20 {
			cancel()
		}
		return status.Error(codes.Unauthenticated, "token has expired")
	})
	require.Len(t, logged.FilterMessageSnippet("opening a stream failed repeatedly").All(), 1)
	require.Equal(t, 1, logged.Len())
}
