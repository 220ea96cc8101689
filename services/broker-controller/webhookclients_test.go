package brokercontroller_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	brokercontroller "akri.sh/services/broker-controller"
)

// TestManyUnknownFields has more unknown fields than are named, of a type whose schema is read.
func TestManyUnknownFields(t *testing.T) {
	e := newWebhookEnv(t)
	e.serve()
	e.eventually(func() bool { return e.dryRun("misspelt", misspelt) != nil }, "the registration of the webhook")
	var fields strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&fields, "%q: 1, ", fmt.Sprintf("f%d", i))
	}
	text := `{"apiVersion": "akri.sh/v0", "kind": "Configuration", "metadata": {"name": "many"}, "spec": {"discoveryHandler": {"name": "debugEcho"},
		"brokerSpec": {"brokerPodSpec": {"containers": [{` + fields.String() + `"name": "a"}]}}}}`
	_, err := e.Configurations.In(e.namespace).Patch(t.Context(), "many", types.ApplyPatchType, []byte(text), metav1.PatchOptions{FieldManager: "test"})
	require.ErrorContains(t, err, "containers[0].f0: Forbidden: unknown field")
	require.ErrorContains(t, err, "spec: Invalid value: has 19950 more problems")
}

// TestClientCertificate calls the webhook with a certificate of the CA of the API servers, of
// another CA, and without one.
func TestClientCertificate(t *testing.T) {
	e := newWebhookEnv(t)
	own, ca := clientCertificate(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(file, ca, 0o600))
	var address string
	e.serve(func(c *brokercontroller.WebhookConfig) { c.ClientCA, address = file, c.URL })
	e.eventually(e.ready, "readiness")

	post := func(certificates ...tls.Certificate) (int, string) {
		transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true, Certificates: certificates}}
		defer transport.CloseIdleConnections()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader(`{}`))
		require.NoError(t, err)
		response, err := transport.RoundTrip(request)
		if err != nil {
			return 0, err.Error()
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, string(body)
	}
	status, body := post()
	require.Equal(t, http.StatusForbidden, status)
	require.Contains(t, body, "a client certificate is required")
	status, body = post(own)
	require.Equal(t, http.StatusBadRequest, status)
	require.Contains(t, body, "AdmissionReview has no request")
	other, _ := clientCertificate(t)
	status, body = post(other)
	require.Zero(t, status)
	require.Contains(t, body, "tls: ")
}

// Reviews are made while other clients hold connections. A connection has one request: with HTTP/2
// a client could keep many in progress by not receiving their responses.
func TestIdleConnectionsDoNotDelayReviews(t *testing.T) {
	e := newWebhookEnv(t)
	var address *url.URL
	e.serve(func(c *brokercontroller.WebhookConfig) {
		parsed, err := url.Parse(c.URL)
		require.NoError(t, err)
		address = parsed
	})
	e.eventually(func() bool { return e.dryRun("misspelt", misspelt) != nil }, "the registration of the webhook")

	dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}}}
	for range 30 {
		conn, err := dialer.DialContext(t.Context(), "tcp", address.Host)
		require.NoError(t, err)
		defer conn.Close()
		require.Equal(t, "http/1.1", conn.(*tls.Conn).ConnectionState().NegotiatedProtocol)
		_, err = io.WriteString(conn, "POST /validate HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{")
		require.NoError(t, err)
	}
	require.ErrorContains(t, e.dryRun("misspelt", misspelt), "unknown field")
}

// clientCertificate returns a certificate that is its own CA, and its PEM.
func clientCertificate(t *testing.T) (tls.Certificate, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kube-apiserver"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}
