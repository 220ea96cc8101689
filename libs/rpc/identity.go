package rpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/jwt"
)

// Identity selects how a client verifies a server and proves its own identity. The zero value is a
// connection in plain text without identity, which is for Unix sockets.
type Identity struct {
	// CAFile has the CA certificates that verify the server, in PEM. It is read at each handshake.
	CAFile string
	// TokenFile has the service account token that is sent with each call. It is read again half a
	// minute before the token expires. After an error it is read again with backoff.
	TokenFile string
}

// DialOptions returns the options for Dial to the address. A file that is missing or invalid is an
// error of the calls, because the kubelet can create it later.
func (i Identity) DialOptions(address string) ([]grpc.DialOption, error) {
	if i == (Identity{}) && isUnix(address) {
		return nil, nil
	}
	if i.CAFile == "" || i.TokenFile == "" {
		return nil, fmt.Errorf("CA file %q and token file %q: set both, or none with a Unix socket as address", i.CAFile, i.TokenFile)
	}
	token, err := jwt.NewTokenFileCallCredentials(i.TokenFile)
	if err != nil {
		return nil, fmt.Errorf("token file: %w", err)
	}
	return []grpc.DialOption{
		grpc.WithTransportCredentials(&caFile{newTLS(nil), i.CAFile}), grpc.WithPerRPCCredentials(token),
	}, nil
}

func newTLS(roots *x509.CertPool) credentials.TransportCredentials {
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots})
}

// caFile are client credentials that read the CA certificates at each handshake.
type caFile struct {
	credentials.TransportCredentials

	path string
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *caFile) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	bundle, err := os.ReadFile(c.path)
	if err != nil {
		return nil, nil, fmt.Errorf("read CA certificates: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		return nil, nil, fmt.Errorf("read CA certificates: %s has no certificate in PEM", c.path)
	}
	return newTLS(roots).ClientHandshake(ctx, authority, conn)
}

// Clone implements credentials.TransportCredentials.
func (c *caFile) Clone() credentials.TransportCredentials {
	return &caFile{c.TransportCredentials.Clone(), c.path}
}
