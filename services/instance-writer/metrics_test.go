package instancewriter_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/libs/kube"
	"akri.sh/libs/metricstest"
	instancev1 "akri.sh/proto/akri/instance/v1"
	instancewriter "akri.sh/services/instance-writer"
)

func TestMetrics(t *testing.T) {
	f := newFixture(t, 2, 1)
	r := startSecuredWith(t, instancewriter.Config{
		Flags: kube.Flags{REST: api.Config()}, NodeGrace: grace, ReportGrace: grace,
		TLS: instancewriter.TLSConfig{Name: createCA(t), Lifetimes: slow},
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
		return r.value("akri_configuration_condition", "DevicesAccepted", name, namespace, "True") == 1
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
