package e2e_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/integration/mesh"
)

// podMonitors is a CustomResourceDefinition that accepts each PodMonitor. The Prometheus operator
// is not installed.
const podMonitors = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: podmonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  names: {kind: PodMonitor, plural: podmonitors, singular: podmonitor}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// keyOf is a key of a Secret or a ConfigMap.
type keyOf struct{ Name, Key string }

// podMonitor is the part of a PodMonitor with which Prometheus proves its rights.
type podMonitor struct {
	Spec struct {
		PodMetricsEndpoints []struct {
			Scheme        string
			Authorization struct{ Credentials keyOf }
			TLSConfig     struct {
				ServerName string
				CA         struct{ Secret keyOf }
			}
		}
	}
}

// metricsAuthorization installs Akri with authorization for metrics. A Prometheus reads them with
// what the PodMonitors of the chart name. Without a token, and with that of an account without the
// right, it does not, and no metric of a node names a Configuration.
func metricsAuthorization(t *testing.T) {
	apply(t, podMonitors)
	_, err := akri.Kubectl(t.Context(), "", "wait", "--for=condition=Established", "crd/podmonitors.monitoring.coreos.com")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, akri.Install(context.WithoutCancel(t.Context()), selected.handlers...)) })
	require.NoError(t, akri.Install(t.Context(), append(selected.handlers, "global.metrics.authorization=true", "prometheus.enabled=true")...))
	apply(t, consoleViewers)
	apply(t, echoConfiguration("e2e-named", 1, "", "foo0"))
	awaitInstances(t, "default", "e2e-named", "e2e-named-8120fe")

	noRights, err := akri.Kubectl(t.Context(), "", "create", "token", "e2e-no-rights")
	require.NoError(t, err)
	files := map[string][]byte{"no-rights": []byte(strings.TrimSpace(noRights))}
	var config strings.Builder
	config.WriteString("global: {scrape_interval: 1s}\nscrape_configs:\n")
	services := []string{"instance-writer", "broker-controller"}
	for _, service := range services {
		// The Pods before the installation may still end, and kubectl would forward to them.
		pod := "pod/" + servicePods(t, service)[0].Name
		endpoint := monitored(t, service).Spec.PodMetricsEndpoints[0]
		require.Equal(t, "https", endpoint.Scheme)
		files[service+".crt"] = secretValue(t, endpoint.TLSConfig.CA.Secret)
		files["reader"] = secretValue(t, endpoint.Authorization.Credentials)
		address := forward(t, mesh.Namespace, pod, "8444")
		for job, authorization := range map[string]string{
			service: "credentials_file: reader", "no-rights-" + service: "credentials_file: no-rights", "no-token-" + service: "",
		} {
			fmt.Fprintf(&config, "- job_name: %s\n  scheme: https\n  static_configs: [{targets: [%q]}]\n", job, address)
			fmt.Fprintf(&config, "  tls_config: {ca_file: %s.crt, server_name: %s}\n", service, endpoint.TLSConfig.ServerName)
			if authorization != "" {
				fmt.Fprintf(&config, "  authorization: {%s}\n", authorization)
			}
		}
		// The port of the probes.
		address = forward(t, mesh.Namespace, pod, "8080")
		fmt.Fprintf(&config, "- job_name: plain-%s\n  static_configs: [{targets: [%q]}]\n", service, address)
	}
	files["prometheus.yml"] = []byte(config.String())

	p := runPrometheus(t, files)
	for _, service := range services {
		p.awaitSeries(t, fmt.Sprintf(`up{job=%q} == 1`, service), true)
		for _, refused := range []string{"no-rights-", "no-token-", "plain-"} {
			p.awaitSeries(t, fmt.Sprintf(`up{job=%q} == 0`, refused+service), true)
			p.awaitSeries(t, fmt.Sprintf(`akri_build_info{job=%q}`, refused+service), false)
		}
	}
	p.awaitSeries(t, `akri_configuration_condition{job="instance-writer",configuration="e2e-named"}`, true)
	p.awaitSeries(t, `akri_refused_scrapes_total{job="broker-controller",reason="Forbidden"} > 0`, true)

	for _, service := range slices.Compact([]string{selected.process("discovery-operator"), selected.process("registrar")}) {
		pod := servicePodOn(t, service, akri.Cluster.Nodes()[0].Name())
		text, err := akri.Metrics(t.Context(), pod)
		require.NoError(t, err)
		require.Contains(t, string(text), "akri_build_info")
		require.NotContains(t, string(text), "e2e-named", service)
	}
}

// monitored returns the PodMonitor of a service.
func monitored(t *testing.T, service string) (monitor podMonitor) {
	t.Helper()
	text, err := akri.Kubectl(t.Context(), "", "get", "podmonitor", "akri-"+service, "--namespace", mesh.Namespace, "--output=json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(text), &monitor))
	require.Len(t, monitor.Spec.PodMetricsEndpoints, 1)
	return monitor
}

// secretValue returns the value of a key of a Secret in Akri's namespace.
func secretValue(t *testing.T, of keyOf) []byte {
	t.Helper()
	path := "jsonpath={.data." + strings.ReplaceAll(of.Key, ".", `\.`) + "}"
	text, err := akri.Kubectl(t.Context(), "", "get", "secret", of.Name, "--namespace", mesh.Namespace, "--output", path)
	require.NoError(t, err)
	value, err := base64.StdEncoding.DecodeString(text)
	require.NoError(t, err)
	require.NotEmpty(t, value, of)
	return value
}
