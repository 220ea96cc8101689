package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube/kubetest"
	discoveryv0 "akri.sh/proto/v0"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
)

// prometheusConfig gets the targets from an HTTP server of the test, because Debian's Prometheus
// cannot read Pods from the API server. It scrapes Pods through the API server, because nodes have
// network namespaces of their own.
const prometheusConfig = `
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [rules.yaml]
scrape_configs:
  - job_name: akri
    scheme: https
    tls_config: {ca_file: ca.crt, cert_file: client.crt, key_file: client.key}
    http_sd_configs: [{url: %s, refresh_interval: 1s}]
`

// alertedServices are the services that export the metrics of the alerts.
func alertedServices() []string {
	all := []string{selected.process("registrar"), selected.process("device-plugin-host"), "instance-writer", "broker-controller"}
	if selected.dynamic {
		all = append(all, "dra-controller")
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// serveTargets serves the present Pods of the services as the targets of Prometheus.
func serveTargets(t *testing.T, apiServer string) *httptest.Server {
	t.Helper()
	type group struct {
		Targets []string          `json:"targets"`
		Labels  map[string]string `json:"labels"`
	}
	selector := fmt.Sprintf("app.kubernetes.io/component in (%s)", strings.Join(alertedServices(), ","))
	server := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		pods, err := akri.Kubernetes.CoreV1().Pods(mesh.Namespace).List(request.Context(), metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			http.Error(response, err.Error(), http.StatusBadGateway)
			return
		}
		groups := []group{}
		for _, pod := range pods.Items {
			port, err := mesh.MetricsPort(&pod)
			if err != nil {
				http.Error(response, err.Error(), http.StatusInternalServerError)
				return
			}
			groups = append(groups, group{[]string{apiServer}, map[string]string{
				"__metrics_path__": fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%s/proxy/metrics", pod.Namespace, pod.Name, port), "instance": pod.Name,
			}})
		}
		response.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(response).Encode(groups) // Prometheus keeps the targets if it fails
	}))
	t.Cleanup(server.Close)
	return server
}

// prometheusServer is a running Prometheus.
type prometheusServer struct{ url string }

// startPrometheus starts a Prometheus that scrapes the Pods of the services.
func startPrometheus(t *testing.T) prometheusServer {
	t.Helper()
	config, err := akri.Cluster.RESTConfig()
	require.NoError(t, err)
	host, err := url.Parse(config.Host)
	require.NoError(t, err)
	return runPrometheus(t, map[string][]byte{
		"ca.crt": config.CAData, "client.crt": config.CertData, "client.key": config.KeyData, "rules.yaml": chartRules(t),
		"prometheus.yml": fmt.Appendf(nil, prometheusConfig, serveTargets(t, host.Host).URL),
	})
}

// runPrometheus runs a Prometheus in a directory with the files until the end of the test.
func runPrometheus(t *testing.T, files map[string][]byte) prometheusServer {
	t.Helper()
	directory := t.TempDir()
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(directory, name), content, 0o600))
	}

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

var (
	ruleFor    = regexp.MustCompile(`"for":"\w+"`)
	ruleWindow = regexp.MustCompile(`\[\w+\]`)
)

// chartRules returns the spec of the PrometheusRule that the chart renders. Alerts fire at once and
// clear 30 s after the last failure that they count.
func chartRules(t *testing.T) []byte {
	t.Helper()
	values := append([]string{"prometheus.rules.enabled=true", "prometheus.rules.flapping.changes=1"}, selected.values...)
	rendered, err := akri.Helm(t.Context(), "template", "akri", akri.Path("charts", "akri"),
		"--set", strings.Join(values, ","), "--show-only", "templates/prometheusrule.yaml")
	require.NoError(t, err)
	var rule struct{ Spec json.RawMessage }
	require.NoError(t, yaml.Unmarshal([]byte(rendered), &rule))
	return ruleWindow.ReplaceAll(ruleFor.ReplaceAll(rule.Spec, []byte(`"for":"0s"`)), []byte("[30s]"))
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

// count returns the number of series of an expression.
func (p prometheusServer) count(ctx context.Context, expression string) (int, error) {
	var found struct{ Result []json.RawMessage }
	err := p.data(ctx, "/api/v1/query?query="+url.QueryEscape(expression), &found)
	return len(found.Result), err
}

// awaitSeries waits until an expression has series or has none.
func (p prometheusServer) awaitSeries(t *testing.T, expression string, want bool) {
	t.Helper()
	await(t, fmt.Sprintf("series of %s: %t", expression, want), func(ctx context.Context) error {
		found, err := p.count(ctx, expression)
		if err == nil && (found > 0) != want {
			err = fmt.Errorf("%d series", found)
		}
		return err
	})
}

// firing is the expression of the firing alerts with the labels.
func firing(name, labels string) string {
	return fmt.Sprintf(`ALERTS{alertstate="firing",alertname="%s",%s}`, name, labels)
}

// awaitFiring waits until an alert with the labels fires.
func (p prometheusServer) awaitFiring(t *testing.T, name, labels string) {
	t.Helper()
	p.awaitSeries(t, firing(name, labels), true)
}

// awaitCleared waits until no alert with the labels fires.
func (p prometheusServer) awaitCleared(t *testing.T, name, labels string) {
	t.Helper()
	p.awaitSeries(t, firing(name, labels), false)
}

// refusedByTest is the message of the policies of refuseWrites.
const refusedByTest = "refused by the test"

// refuseWrites makes the API server refuse to write Instances and Leases that match the CEL
// expression, as the admission webhook of another product can. The returned function ends that.
func refuseWrites(t *testing.T, policy, expression string) (accept func()) {
	t.Helper()
	manifest := fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [akri.sh], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [instances]}
    - {apiGroups: [coordination.k8s.io], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [leases]}
  matchConditions: [{name: objects, expression: %[2]q}]
  validations: [{expression: "false", reason: Forbidden, message: %[3]s}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
`, policy, expression, refusedByTest)
	apply(t, manifest)
	return func() { require.NoError(t, akri.DeleteText(t.Context(), manifest)) }
}

// awaitRefused waits until the API server refuses to write an object.
func awaitRefused(t *testing.T, namespace, kind, name string) {
	t.Helper()
	await(t, "refusal to write "+name, func(ctx context.Context) error {
		_, err := akri.Kubectl(ctx, "", "annotate", "--dry-run=server", "--namespace", namespace, kind, name, "akri.sh/e2e=refused")
		if err == nil || !strings.Contains(err.Error(), refusedByTest) {
			return fmt.Errorf("write %s: %w", name, err)
		}
		return nil
	})
}

// recordHolder records a holder of all slots of the Instance, as a user or a restored backup can.
func recordHolder(t *testing.T, instance, holder string) {
	t.Helper()
	kubetest.Edit(t, akri.Instances.In("default"), instance, func(object *akriv0.Instance) {
		for slot := range object.Spec.DeviceUsage {
			object.Spec.DeviceUsage[slot] = holder
		}
	})
}

// alertsOfIncidents causes incidents that concern only its Configurations. Their alerts fire, and
// clear when the incidents end.
func alertsOfIncidents(t *testing.T) {
	const configuration, handlerName = "e2e-alerts", "e2eAlerts"
	const labels = `configuration="e2e-alerts"`
	p := startPrometheus(t)
	node, device := akri.Cluster.Nodes()[0], &discoveryv0.Device{Id: "x"}
	onInstance := fmt.Sprintf("instance=%q", servicePodOn(t, selected.process("device-plugin-host"), node.Name()).Name)
	handler := handle(t, node, handlerName, device)
	instance := instanceName(configuration, "x", "", true)
	apply(t, configurationOf(configuration, handlerName, ""))
	awaitInstances(t, "default", configuration, instance)
	awaitAllocatable(t, node.Name(), instance, 1)
	noHandler := configurationOf("e2e-alerts-unready", "e2eNoSuchHandler", "")
	apply(t, noHandler)

	pod := ownPod("e2e-alerts", instance)
	apply(t, pod)
	p.awaitFiring(t, "AkriSlotsUsedUp", labels)
	// The alert needs a sample from before the increase.
	p.awaitSeries(t, `{__name__=~"akri_(dra_)?lost_slots_total",result="taken",`+onInstance+`} >= 0`, true)
	recordHolder(t, instance, akri.Cluster.Nodes()[1].Name())
	p.awaitFiring(t, "AkriSlotsTaken", onInstance)
	require.NoError(t, akri.DeleteText(t.Context(), pod))
	recordHolder(t, instance, "")
	p.awaitCleared(t, "AkriSlotsUsedUp", labels)
	p.awaitFiring(t, "AkriDevicesNotWorking", `configuration="e2e-alerts-unready"`)
	require.NoError(t, akri.DeleteText(t.Context(), noHandler))

	accept := refuseWrites(t, "e2e-alerts", `object.metadata.name == "`+instance+`"`)
	awaitRefused(t, "default", "akrii", instance)
	apply(t, pod)
	p.awaitFiring(t, "AkriAllocationsFailing", onInstance)
	p.awaitFiring(t, "AkriAPIWritesFailing", `kind="instance"`)
	require.NoError(t, akri.DeleteText(t.Context(), pod))
	accept()

	p.awaitSeries(t, `akri_device_changes_total{configuration="e2e-alerts",change="removed"} == 0`, true)
	// On a busy machine, two flaps can take longer than the window of the alert.
	await(t, "alert AkriDeviceFlapping", func(ctx context.Context) error {
		handler.send(t)
		awaitInstances(t, "default", configuration)
		handler.send(t, device)
		awaitInstances(t, "default", configuration, instance)
		found, err := p.count(ctx, firing("AkriDeviceFlapping", labels))
		if err == nil && found == 0 {
			err = errors.New("it does not fire")
		}
		return err
	})

	handler.stop()
	p.awaitFiring(t, "AkriHandlerOffline", fmt.Sprintf("name=%q", handlerName))
	handle(t, node, handlerName, device)
	p.awaitCleared(t, "AkriHandlerOffline", fmt.Sprintf("name=%q", handlerName))
	p.awaitCleared(t, "AkriDeviceFlapping", labels)
	p.awaitCleared(t, "AkriDevicesNotWorking", `configuration="e2e-alerts-unready"`)
	p.awaitCleared(t, "AkriSlotsTaken", onInstance)
	p.awaitCleared(t, "AkriAllocationsFailing", onInstance)
	p.awaitCleared(t, "AkriAPIWritesFailing", `kind="instance"`)
	p.requireDocumented(t)
}

// scaleService sets the number of replicas of a service and returns the previous one.
func scaleService(t *testing.T, service string, replicas int32) (previous int32) {
	t.Helper()
	deployments := akri.Kubernetes.AppsV1().Deployments(mesh.Namespace)
	list, err := deployments.List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=" + service})
	require.NoError(t, err)
	require.Len(t, list.Items, 1)
	object, err := deployments.GetScale(t.Context(), list.Items[0].Name, metav1.GetOptions{})
	require.NoError(t, err)
	previous, object.Spec.Replicas = object.Spec.Replicas, replicas
	_, err = deployments.UpdateScale(t.Context(), object.Name, object, metav1.UpdateOptions{})
	require.NoError(t, err)
	return previous
}

// hangWrites makes writes of the Configuration's Instances hang, as the admission webhook of
// another product does if its server accepts connections but does not respond. The returned
// function ends that.
func hangWrites(t *testing.T, configuration string) (resume func()) {
	t.Helper()
	// The kernel accepts connections.
	server, err := akri.Cluster.Neighbour(t.Context(), "python3", "-c",
		"import signal, socket; server = socket.create_server(('', 9443)); signal.pause()")
	require.NoError(t, err)
	require.NoError(t, server.Start())
	t.Cleanup(func() { _ = server.Wait() }) // the context of the test has ended
	manifest := fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: %[1]s}
webhooks:
- name: hangs.example.com
  clientConfig: {url: "https://%[2]s:9443/"}
  rules: [{apiGroups: [akri.sh], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [instances]}]
  matchConditions: [{name: configuration, expression: object.spec.configurationName == %[1]q}]
  failurePolicy: Ignore
  timeoutSeconds: 30
  sideEffects: None
  admissionReviewVersions: [v1]
`, configuration, cluster.NeighbourIP)
	apply(t, manifest)
	instance := fmt.Sprintf(`{apiVersion: akri.sh/v0, kind: Instance, metadata: {name: %[1]s, namespace: default}, spec: {
configurationName: %[1]s, capacity: 1, cdiName: akri.sh/%[1]s=x, shared: true, nodes: [], deviceUsage: {}}}`, configuration)
	await(t, "a write that hangs", func(ctx context.Context) error {
		_, err := akri.Kubectl(ctx, instance, "create", "--dry-run=server", "--request-timeout=2s", "--filename=-")
		if err == nil || !strings.Contains(err.Error(), "Timeout") {
			return fmt.Errorf("create %s: %w", configuration, err)
		}
		return nil
	})
	return func() { require.NoError(t, akri.DeleteText(t.Context(), manifest)) }
}

// alertsOfServices stops services. At the end no alert fires. It follows a scenario with the same
// Prometheus. values are those of the installation.
func alertsOfServices(t *testing.T, p prometheusServer, values []string) {
	t.Helper()
	resume := hangWrites(t, "e2e-hangs")
	apply(t, echoConfiguration("e2e-hangs", 1, "", "foo0"))
	p.awaitFiring(t, "AkriAPIWritesFailing", `kind="instance"`) // after 5 s without a response
	resume()
	p.awaitFiring(t, "AkriReportsSlow", "")
	awaitInstances(t, "default", "e2e-hangs", "e2e-hangs-8120fe")
	// The server certificates of the installation have a lifetime of 10 s.
	p.awaitFiring(t, "AkriCertificateExpiring", `certificate="server"`)
	alerts := map[string]string{"instance-writer": firing("AkriInstanceWriterDown", ""), "broker-controller": firing("AkriNoLeader", `service="broker-controller"`)}
	if selected.dynamic {
		alerts["dra-controller"] = firing("AkriNoLeader", `service="dra-controller"`)
	}
	replicas := map[string]int32{}
	for service := range alerts {
		replicas[service] = scaleService(t, service, 0)
	}
	for _, alert := range alerts {
		p.awaitSeries(t, alert, true)
	}
	for service, count := range replicas {
		scaleService(t, service, count)
	}
	require.NoError(t, akri.Install(t.Context(), append(values, "instance-writer.env.AKRI_TLS_LIFETIME_SERVER=24h")...))
	p.awaitSeries(t, "ALERTS", false)
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
