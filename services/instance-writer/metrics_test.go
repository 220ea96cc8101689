package instancewriter_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/libs/kube"
	"akri.sh/libs/kube/scrape"
	"akri.sh/libs/listentest"
	"akri.sh/libs/metricstest"
	instancev1 "akri.sh/proto/akri/instance/v1"
	instancewriter "akri.sh/services/instance-writer"
)

func TestMetrics(t *testing.T) {
	f := newFixture(t, 2, 1)
	r := startSecuredWith(t, instancewriter.Config{
		Flags: kube.Flags{REST: api.Config()}, NodeGrace: grace, ReportGrace: grace,
		TLS: instancewriter.TLSConfig{Name: createCA(t), Lifetimes: slow}, Metrics: scrape.Config{Address: listentest.Address(t)},
	})
	node := f.nodes[0]
	s := openReports(t, &replica{client: r.client(token(t, namespace, operator, node, audience))})
	require.Empty(t, s.send(f.newReport(node, f.device(node, "foo", false), f.device(node, "bar", false))))
	require.Empty(t, s.send(f.newReport(node, f.device(node, "foo", false))))
	_, err := r.client(token(t, namespace, host, node, audience)).ReserveSlots(t.Context(), &instancev1.ReserveSlotsRequest{
		Node: node, Claims: []*instancev1.SlotClaim{claim(f.device(node, "foo", false).GetInstance(), 1)},
	})
	require.NoError(t, err)
	name := f.configuration.Name
	require.InDelta(t, 2, r.value("akri_device_changes_total", "added", name), 0)
	require.InDelta(t, 1, r.value("akri_device_changes_total", "removed", name), 0)
	// The watch delivers the writes later.
	f.eventually("one Instance with a slot that is used", func() bool {
		return r.value("akri_instances", name, "false") == 1 && r.value("akri_slots", name, "free") == 1 && r.value("akri_slots", name, "used") == 1
	})
	require.Positive(t, r.value("akri_reporting_nodes"))
	f.eventually("a condition that is True", func() bool {
		return r.value("akri_configuration_condition", "DevicesAccepted", name, namespace, "AsExpected", "True") == 1
	})
	for certificate, lifetime := range map[string]time.Duration{"server": slow.Server, "ca": slow.CA} {
		expiry := time.Unix(int64(r.value("akri_certificate_expiry_timestamp_seconds", certificate)), 0)
		require.WithinDuration(t, time.Now().Add(lifetime), expiry, time.Minute, certificate)
	}
	metricstest.Check(t, r.metrics, "../../docs/metrics.md", "instance-writer")

	require.NoError(t, f.configurations.In(namespace).Delete(t.Context(), f.configuration.Name, metav1.DeleteOptions{}))
	f.eventually("the series of the deleted Configuration to disappear", func() bool {
		families, err := r.metrics.Gather()
		require.NoError(t, err)
		return !strings.Contains(fmt.Sprint(families), `value:"`+name+`"`)
	})
}

// The metrics are served with a certificate that the published CA verifies, and not to anyone.
func TestMetricsAreGuarded(t *testing.T) {
	address := listentest.Address(t)
	r := startSecuredWith(t, instancewriter.Config{
		Flags: kube.Flags{REST: api.Config()}, NodeGrace: grace,
		TLS: instancewriter.TLSConfig{Name: createCA(t), Lifetimes: slow}, Metrics: scrape.Config{Address: address},
	})
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- r.guard.Serve(ctx, r.metrics) }()
	t.Cleanup(func() { stop(); require.NoError(t, <-served) })
	roots, err := os.ReadFile(r.ca)
	require.NoError(t, err)
	bundle := x509.NewCertPool()
	require.True(t, bundle.AppendCertsFromPEM(roots))
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: bundle, ServerName: "akri-instance-writer"},
	}}
	var response *http.Response
	require.Eventually(t, func() bool {
		response, err = client.Get("https://" + address + "/metrics") //nolint:bodyclose // closed below
		return err == nil
	}, timeout, pollInterval)
	require.NoError(t, response.Body.Close())
	require.Equal(t, http.StatusUnauthorized, response.StatusCode)
	require.InDelta(t, 1, r.value("akri_refused_scrapes_total", "NoToken"), 0)
}
