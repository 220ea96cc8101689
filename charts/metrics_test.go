package charts_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const metricsReader = "akri-metrics-reader"

// authorizing are the services that authorize who reads their metrics.
var authorizing = []string{"instance-writer", "broker-controller"}

// withoutNames are metrics of which global.metrics.authorization leaves the label configuration
// empty.
var withoutNames = []string{"akri_discovery_response_time", "akri_instance_count"}

// harmlessLabels are the labels of metrics that contain no name from a namespace.
var harmlessLabels = []string{
	"certificate", "discovery_handler_name", "go", "handler", "is_shared", "kind", "level", "name", "of", "operation", "part", "reason",
	"resource", "result", "status", "verb", "version",
}

// TestOnlyGuardedMetricsHaveNames checks that the metrics of services which anyone reads with
// global.metrics.authorization contain no names from a namespace, by their labels in
// docs/metrics.md. The tests of each service compare that page with its metrics.
func TestOnlyGuardedMetricsHaveNames(t *testing.T) {
	row := regexp.MustCompile("(?m)^\\| `(\\w+)` \\| \\w+ \\| ([^|]*) \\|")
	found := map[string]bool{}
	for _, section := range strings.Split(read(t, "docs/metrics.md"), "\n## ")[1:] {
		service, text, _ := strings.Cut(section, "\n")
		for _, match := range row.FindAllStringSubmatch(text, -1) {
			for label := range strings.SplitSeq(match[2], ", ") {
				label = strings.Trim(strings.TrimSpace(label), "`")
				if label == "" || slices.Contains(harmlessLabels, label) {
					continue
				}
				found[service] = true
				require.True(t, slices.Contains(authorizing, service) || slices.Contains(withoutNames, match[1]),
					"%s of %s: can the label %s contain a name from a namespace? If not, add it to the harmless labels of this test", match[1], service, label)
			}
		}
	}
	require.Equal(t, map[string]bool{"instance-writer": true, "broker-controller": true, "discovery-operator": true}, found)
}

type podMonitor struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		NamespaceSelector   struct{ MatchNames []string }
		Selector            metav1.LabelSelector
		PodMetricsEndpoints []struct {
			Port, Path, Scheme string
			Authorization      *struct{ Credentials corev1.SecretKeySelector }
			TLSConfig          *struct {
				ServerName         string
				InsecureSkipVerify bool
				CA                 struct {
					Secret    *corev1.SecretKeySelector
					ConfigMap *corev1.ConfigMapKeySelector
				}
			}
		}
	}
}

// TestPodMonitors checks that one PodMonitor scrapes each Pod, at its port of metrics, and that no
// token is sent in plain text or to a server that is not verified.
func TestPodMonitors(t *testing.T) {
	for name, c := range map[string]struct {
		values []string
		tls    map[string]string
	}{
		"by default": {nil, nil},
		"with authorization": {[]string{"global.metrics.authorization=true"}, map[string]string{
			"instance-writer":   "akri-instance-writer Secret akri-ca",
			"broker-controller": "akri-webhook-configuration.akri-system.svc Secret akri-webhook-configuration",
		}},
		"with certificates of others": {[]string{
			"global.metrics.authorization=true", "global.transport.existingSecret=writer", "global.transport.caConfigMap=authority",
			"broker-controller.webhook.existingSecret=webhook",
		}, map[string]string{
			"instance-writer":   "akri-instance-writer ConfigMap authority",
			"broker-controller": "akri-webhook-configuration.akri-system.svc Secret webhook",
		}},
		"without broker-controller": {[]string{"global.metrics.authorization=true", "broker-controller.enabled=false"}, map[string]string{
			"instance-writer": "akri-instance-writer Secret akri-ca",
		}},
		"with an agent and namespaces": {[]string{
			"global.metrics.authorization=true", "global.agent.enabled=true", "global.nodePlane.namespace=nodes",
		}, map[string]string{
			"instance-writer":   "akri-instance-writer Secret akri-ca",
			"broker-controller": "akri-webhook-configuration.akri-system.svc Secret akri-webhook-configuration",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			values := append([]string{"prometheus.enabled=true", "console.enabled=true", "global.resources=dra"}, c.values...)
			rendered, err := render(t, append(allHandlers(t), set(values...)...)...)
			require.NoError(t, err)
			monitors := decode[podMonitor](t, rendered, "PodMonitor")
			require.Len(t, monitors, 1+len(c.tls))
			objects := names(decode[metav1.PartialObjectMetadata](t, rendered, "Secret", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"))
			if len(c.tls) > 0 {
				for _, kind := range []string{"Secret", "ServiceAccount", "ClusterRole", "ClusterRoleBinding"} {
					require.Contains(t, objects, kind+" "+metricsReader)
				}
			} else {
				require.NotContains(t, strings.Join(objects, ","), metricsReader)
			}

			for _, workload := range workloads(t, rendered) {
				service, pod := component(workload), workload.Spec.Template
				if service == "cleanup" {
					continue
				}
				selecting := slices.DeleteFunc(slices.Clone(monitors), func(m podMonitor) bool { return !selects(t, &m.Spec.Selector, pod.Labels) })
				require.Len(t, selecting, 1, service)
				require.Len(t, selecting[0].Spec.PodMetricsEndpoints, 1)
				endpoint := selecting[0].Spec.PodMetricsEndpoints[0]
				require.Equal(t, "metrics", endpoint.Port)
				require.Equal(t, "/metrics", endpoint.Path)
				port := portNamed(t, pod.Spec, "metrics")
				if c.tls[service] == "" {
					require.Nil(t, endpoint.Authorization, service)
					require.Empty(t, endpoint.Scheme, service)
					require.NotEqualValues(t, 8444, port)
					require.NotContains(t, environment(pod.Spec), "AKRI_METRICS_ADDRESS")
					continue
				}
				require.Equal(t, "https", endpoint.Scheme)
				require.Equal(t, metricsReader+" token", endpoint.Authorization.Credentials.Name+" "+endpoint.Authorization.Credentials.Key)
				require.False(t, endpoint.TLSConfig.InsecureSkipVerify)
				require.Equal(t, c.tls[service], authority(endpoint.TLSConfig.ServerName, endpoint.TLSConfig.CA.Secret, endpoint.TLSConfig.CA.ConfigMap))
				require.EqualValues(t, 8444, port)
				require.EqualValues(t, 8080, portNamed(t, pod.Spec, "health"))
				require.Equal(t, ":8444", environment(pod.Spec)["AKRI_METRICS_ADDRESS"])
				for _, probe := range []*corev1.Probe{pod.Spec.Containers[0].LivenessProbe, pod.Spec.Containers[0].ReadinessProbe} {
					require.Equal(t, "health", probe.HTTPGet.Port.String())
				}
			}
		})
	}
}

// TestNamesInMetricsOfNodes checks that discovery-operator leaves out names, alone and in the
// agent.
func TestNamesInMetricsOfNodes(t *testing.T) {
	for _, c := range []struct{ service, variable, values string }{
		{"discovery-operator", "AKRI_METRICS_WITHOUT_NAMES", "global.agent.enabled=false"},
		{"agent", "AKRI_DISCOVERY_OPERATOR_METRICS_WITHOUT_NAMES", "global.agent.enabled=true"},
	} {
		for authorization, want := range map[string]string{"true": "true", "false": ""} {
			rendered, err := render(t, set(c.values, "global.metrics.authorization="+authorization)...)
			require.NoError(t, err)
			for _, workload := range workloads(t, rendered) {
				if component(workload) == c.service {
					require.Equal(t, want, environment(workload.Spec.Template.Spec)[c.variable], c.service)
				}
			}
		}
	}
}

// TestMetricsReaderWithoutPrometheus checks that the chart creates an account for Prometheus only
// together with the PodMonitors that use it.
func TestMetricsReaderWithoutPrometheus(t *testing.T) {
	rendered, err := render(t, set("global.metrics.authorization=true")...)
	require.NoError(t, err)
	require.Contains(t, names(decode[metav1.PartialObjectMetadata](t, rendered, "ClusterRole")), "ClusterRole "+metricsReader)
	for _, binding := range decode[rbacv1.ClusterRoleBinding](t, rendered, "ClusterRoleBinding") {
		require.NotEqual(t, metricsReader, binding.RoleRef.Name)
	}
	require.NotContains(t, names(decode[metav1.PartialObjectMetadata](t, rendered, "Secret", "ServiceAccount")), "Secret "+metricsReader)
}

func names(objects []metav1.PartialObjectMetadata) []string {
	var names []string
	for _, object := range objects {
		names = append(names, object.Kind+" "+object.Name)
	}
	return names
}

func authority(server string, secret *corev1.SecretKeySelector, configMap *corev1.ConfigMapKeySelector) string {
	if secret != nil && configMap == nil && secret.Key == "ca.crt" {
		return server + " Secret " + secret.Name
	}
	if configMap != nil && secret == nil && configMap.Key == "ca.crt" {
		return server + " ConfigMap " + configMap.Name
	}
	return server
}

func portNamed(t *testing.T, pod corev1.PodSpec, name string) int32 {
	t.Helper()
	for _, port := range pod.Containers[0].Ports {
		if port.Name == name {
			return port.ContainerPort
		}
	}
	require.Failf(t, "no port", "%s in %v", name, pod.Containers[0].Ports)
	return 0
}

func environment(pod corev1.PodSpec) map[string]string {
	values := map[string]string{}
	for _, variable := range pod.Containers[0].Env {
		values[variable.Name] = variable.Value
	}
	return values
}
