package opcua_test

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"akri.sh/libs/pki"
	"akri.sh/proto/opcuanode"
)

// TestBrokerRequiresToken requests everything that the broker serves with TLS, with and without the
// token. Only the health has no value, and needs none.
func TestBrokerRequiresToken(t *testing.T) {
	const token = "0123456789abcdef"
	directory, now := t.TempDir(), time.Now()
	ca, err := pki.NewCA(now, "test", time.Hour)
	require.NoError(t, err)
	pair, err := pki.NewServer(now, ca, "opcua-broker", time.Hour, []string{"broker.test"})
	require.NoError(t, err)
	environment := map[string]string{
		"OPCUA_DISCOVERY_URL_8120FE": "opc.tcp://127.0.0.1:1/", "NODES": "open: ns=2;s=Open",
		"TLS_CERT_FILE": filepath.Join(directory, "tls.crt"), "TLS_KEY_FILE": filepath.Join(directory, "tls.key"), "TOKEN_FILE": filepath.Join(directory, "token"),
	}
	for name, content := range map[string]string{"TLS_CERT_FILE": string(pair.CertificatePEM), "TLS_KEY_FILE": string(pair.KeyPEM), "TOKEN_FILE": token + "\n"} {
		require.NoError(t, os.WriteFile(environment[name], []byte(content), 0o600))
	}
	broker := runBroker(t, environment)

	authorities := x509.NewCertPool()
	authorities.AddCert(ca.Leaf)
	config := &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: authorities, ServerName: "broker.test"}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	t.Cleanup(client.CloseIdleConnections)
	conn, err := grpc.NewClient(broker.address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	require.NoError(t, err)
	defer conn.Close()

	code := func(path, authorization string) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+broker.address+path, nil)
		require.NoError(t, err)
		request.Header.Set("Authorization", authorization)
		response, err := client.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	getValue := func(authorization string) codes.Code {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", authorization)
		_, err := opcuanode.NewOpcuaNodeClient(conn).GetValue(ctx, &opcuanode.ValueRequest{})
		return status.Code(err)
	}
	paths := []string{"/values", "/values/open", "/metrics"}
	for _, authorization := range []string{"", "Bearer", "Bearer " + token[1:], "Bearer " + token + "0"} {
		for _, path := range append(paths, "/", "/none") {
			require.Equal(t, http.StatusUnauthorized, code(path, authorization), "%s with %q", path, authorization)
		}
		require.Equal(t, codes.Unauthenticated, getValue(authorization), authorization)
	}
	for _, path := range paths {
		require.Equal(t, http.StatusOK, code(path, "Bearer "+token), path)
	}
	require.Equal(t, codes.Unavailable, getValue("Bearer "+token), "there is no session with the server")
	require.Equal(t, http.StatusServiceUnavailable, code("/healthz", ""))
	require.Equal(t, http.StatusBadRequest, broker.status("/values"), "plain text")
}
