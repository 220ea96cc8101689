package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	discoveryv0 "akri.sh/proto/v0"
)

// alertValues make the alerts of the test fire as soon as Prometheus sees the problem.
const alertValues = `prometheus:
  rules:
    enabled: true
    for: {AkriHandlerOffline: 0s, AkriSlotsUsedUp: 0s}
    flapping: {window: 20s, changes: 1}
`

// prometheusConfig scrapes Pods through the API server, because nodes have network namespaces of
// their own. Debian's Prometheus cannot read Pods from the API server.
const prometheusConfig = `
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yaml]
scrape_configs:
  - job_name: akri
    scheme: https
    tls_config: {ca_file: ca.crt, cert_file: client.crt, key_file: client.key}
    static_configs:
`

// target is a static_config. The arguments are the address of the API server, the namespace and the
// name of the Pod.
const target = `
      - targets: [%[1]s]
        labels: {__metrics_path__: "/api/v1/namespaces/%[2]s/pods/%[3]s:8080/proxy/metrics", instance: %[3]s}
`

// prometheusServer is a running Prometheus with the rules of the chart.
type prometheusServer struct{ url string }

func startPrometheus(t *testing.T) prometheusServer {
	t.Helper()
	directory := t.TempDir()
	write := func(name string, content []byte) {
		require.NoError(t, os.WriteFile(filepath.Join(directory, name), content, 0o600))
	}
	config, err := akri.Cluster.RESTConfig()
	require.NoError(t, err)
	host, err := url.Parse(config.Host)
	require.NoError(t, err)
	write("ca.crt", config.CAData)
	write("client.crt", config.CertData)
	write("client.key", config.KeyData)
	write("rules.yaml", chartRules(t, directory))
	targets := ""
	for _, service := range []string{selected.process("registrar"), "instance-writer", "broker-controller"} {
		for _, pod := range servicePods(t, service) {
			targets += fmt.Sprintf(target, host.Host, pod.Namespace, pod.Name)
		}
	}
	write("prometheus.yml", []byte(prometheusConfig+targets))

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())
	command := exec.CommandContext(t.Context(), "prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data",
		"--web.listen-address="+address, "--log.level=warn")
	command.Dir = directory
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = 10 * time.Second
	var output strings.Builder
	command.Stdout, command.Stderr = &output, &output
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Wait() // the context of the test has ended
		if t.Failed() {
			t.Logf("prometheus: %s", &output)
		}
	})
	p := prometheusServer{"http://" + address}
	await(t, "start of Prometheus", func(ctx context.Context) error {
		_, err := p.get(ctx, "/-/ready")
		return err
	})
	return p
}

// chartRules returns the spec of the PrometheusRule that the chart renders.
func chartRules(t *testing.T, directory string) []byte {
	t.Helper()
	values := filepath.Join(directory, "values.yaml")
	require.NoError(t, os.WriteFile(values, []byte(alertValues), 0o600))
	rendered, err := akri.Helm(t.Context(), "template", "akri", akri.Path("charts", "akri"),
		"--values", values, "--show-only", "templates/prometheusrule.yaml")
	require.NoError(t, err)
	var rule struct{ Spec json.RawMessage }
	require.NoError(t, yaml.Unmarshal([]byte(rendered), &rule))
	return rule.Spec
}

// get returns the body of a response.
func (p prometheusServer) get(ctx context.Context, path string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", path, response.Status)
	}
	return io.ReadAll(response.Body)
}

// data decodes the data of a response of the API.
func (p prometheusServer) data(ctx context.Context, path string, into any) error {
	body, err := p.get(ctx, path)
	if err != nil {
		return err
	}
	return json.Unmarshal(body, &struct{ Data any }{into})
}

// fires returns whether an alert with the label fires.
func (p prometheusServer) fires(ctx context.Context, name, label, value string) (bool, error) {
	var active struct {
		Alerts []struct {
			Labels map[string]string
			State  string
		}
	}
	if err := p.data(ctx, "/api/v1/alerts", &active); err != nil {
		return false, err
	}
	for _, alert := range active.Alerts {
		if alert.Labels["alertname"] == name && alert.Labels[label] == value && alert.State == "firing" {
			return true, nil
		}
	}
	return false, nil
}

// awaitAlert waits until an alert with the label fires or does not.
func (p prometheusServer) awaitAlert(t *testing.T, name, label, value string, want bool) {
	t.Helper()
	await(t, fmt.Sprintf("alert %s with %s=%q, firing: %t", name, label, value, want), func(ctx context.Context) error {
		firing, err := p.fires(ctx, name, label, value)
		if err == nil && firing != want {
			err = fmt.Errorf("firing: %t", firing)
		}
		return err
	})
}

// awaitSeries waits until Prometheus has a series.
func (p prometheusServer) awaitSeries(t *testing.T, series string) {
	t.Helper()
	await(t, "series "+series, func(ctx context.Context) error {
		var found struct{ Result []json.RawMessage }
		if err := p.data(ctx, "/api/v1/query?query="+url.QueryEscape(series), &found); err != nil {
			return err
		}
		if len(found.Result) == 0 {
			return errors.New("no series")
		}
		return nil
	})
}

// alertsOfIncidents causes incidents. Their alerts fire, and clear when the incidents end.
func alertsOfIncidents(t *testing.T) {
	const configuration, handlerName = "e2e-alerts", "e2eAlerts"
	p := startPrometheus(t)
	node, device := akri.Cluster.Nodes()[0], &discoveryv0.Device{Id: "x"}
	handler := handle(t, node, handlerName, device)
	instance := instanceName(configuration, "x", "", true)
	apply(t, configurationOf(configuration, handlerName, ""))
	awaitInstances(t, "default", configuration, instance)

	pod := ownPod("e2e-alerts", instance)
	apply(t, pod)
	p.awaitAlert(t, "AkriSlotsUsedUp", "configuration", configuration, true)
	require.NoError(t, akri.DeleteText(t.Context(), pod))
	p.awaitAlert(t, "AkriSlotsUsedUp", "configuration", configuration, false)

	p.awaitSeries(t, `akri_device_changes_total{configuration="e2e-alerts",change="removed"} == 0`)
	// On a busy machine, two flaps can take longer than the window of the alert.
	await(t, "alert AkriDeviceFlapping", func(ctx context.Context) error {
		handler.send(t)
		awaitInstances(t, "default", configuration)
		handler.send(t, device)
		awaitInstances(t, "default", configuration, instance)
		firing, err := p.fires(ctx, "AkriDeviceFlapping", "configuration", configuration)
		if err == nil && !firing {
			err = errors.New("it does not fire")
		}
		return err
	})

	handler.stop()
	p.awaitAlert(t, "AkriHandlerOffline", "name", handlerName, true)
	handle(t, node, handlerName, device)
	p.awaitAlert(t, "AkriHandlerOffline", "name", handlerName, false)
	p.awaitAlert(t, "AkriDeviceFlapping", "configuration", configuration, false)
	p.requireDocumented(t)
}

var documentedMetric = regexp.MustCompile("(?m)^\\| `(akri_\\w+)` ")

// requireDocumented compares the metrics that Prometheus has scraped with docs/metrics.md.
func (p prometheusServer) requireDocumented(t *testing.T) {
	t.Helper()
	var names []string
	require.NoError(t, p.data(t.Context(), "/api/v1/label/__name__/values", &names))
	text, err := os.ReadFile(akri.Path("docs", "metrics.md"))
	require.NoError(t, err)
	documented := map[string]bool{}
	for _, match := range documentedMetric.FindAllStringSubmatch(string(text), -1) {
		documented[match[1]] = true
	}
	ofHistogram := regexp.MustCompile("_(bucket|sum|count)$")
	for _, name := range names {
		if strings.HasPrefix(name, "akri_") {
			require.True(t, documented[name] || documented[ofHistogram.ReplaceAllString(name, "")], "docs/metrics.md lacks %s", name)
		}
	}
}
