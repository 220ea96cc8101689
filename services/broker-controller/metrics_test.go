package brokercontroller_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"akri.sh/libs/admin"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/scrape"
	"akri.sh/libs/metricstest"
	"akri.sh/libs/service"
	brokercontroller "akri.sh/services/broker-controller"
	"akri.sh/services/broker-controller/internal/webhook"
)

func TestMetricsAreDocumented(t *testing.T) {
	e := newWebhookEnv(t)
	e.start(e.webhookConfig(), guarded("127.0.0.1:0"))
	e.eventually(e.ready, "a certificate of the webhook")
	e.instance(e.configuration("echo", podsOnly), "8120fe", 1, "node-a")
	e.eventuallyNames(e.podNames, "echo-8120fe-pod")
	metricstest.Check(t, e.metrics, "../../docs/metrics.md", "broker-controller")
}

func guarded(address string) func(*brokercontroller.Config) {
	return func(c *brokercontroller.Config) { c.Metrics.Address = address }
}

// The metrics are served with a certificate that the CA in the Secret of the webhook verifies, and
// not to anyone.
func TestMetricsAreGuarded(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	e := newWebhookEnv(t)
	e.start(e.webhookConfig(), guarded(address))
	e.eventually(e.ready, "a certificate of the webhook")
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- e.guard.Serve(ctx, e.metrics) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-served) })

	roots := x509.NewCertPool()
	require.True(t, roots.AppendCertsFromPEM(e.secret().Data[webhook.CACertKey]))
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: webhookName + "." + e.namespace + ".svc"},
	}}
	e.eventually(func() bool {
		response, err := client.Get("https://" + address + "/metrics")
		return err == nil && response.Body.Close() == nil && response.StatusCode == http.StatusUnauthorized
	}, "a response")

	env := service.Env{Log: zap.NewNop(), Metrics: prometheus.NewRegistry(), Health: &admin.Health{}, Guard: &admin.Guard{}}
	_, err = brokercontroller.New(brokercontroller.Config{
		Flags: kube.Flags{REST: server.Config()}, PendingMax: timeout, BrokerStartTimeout: timeout, Metrics: scrape.Config{Address: address},
	}, env)
	require.ErrorContains(t, err, "--metrics-address: requires --webhook-address")
}
