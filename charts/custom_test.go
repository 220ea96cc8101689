package charts_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestReleasesOfConfigurations checks that a release without services has nothing but
// Configurations, whatever other values it has. Helm runs hooks of objects that it renders.
func TestReleasesOfConfigurations(t *testing.T) {
	arguments := append([]string{"--values", "testdata/configurations.values.yaml"}, allHandlers(t)...)
	for name, values := range map[string][]string{
		"default": nil,
		"agent":   set("global.agent.enabled=true"),
		"DRA":     set("global.resources=dra", "console.enabled=true"),
		"monitoring": set("prometheus.enabled=true", "prometheus.rules.enabled=true", "prometheus.dashboard.enabled=true",
			"global.metrics.authorization=true"),
		"custom handler": set("custom.discovery.enabled=true", "custom.discovery.image.repository=a"),
	} {
		t.Run(name, func(t *testing.T) {
			rendered, err := render(t, append(arguments, values...)...)
			require.NoError(t, err)
			var found []string
			for _, object := range decode[metav1.PartialObjectMetadata](t, rendered, matches(`(?m)^kind: (\w+)`, rendered)...) {
				found = append(found, object.Kind+" "+object.Name)
			}
			require.ElementsMatch(t, []string{"Configuration akri-custom", "Configuration front-camera", "Configuration other-cameras"}, found)
		})
	}
	_, err := render(t, set("services.enabled=true")...)
	require.ErrorContains(t, err, "/services/enabled")
	require.ErrorContains(t, err, "value must be false")
	require.Contains(t, notes(t, arguments...), "This release has only Configurations.")
	require.NotContains(t, notes(t, arguments...), "helm uninstall")
}

// TestCustomHandler checks how a handler of others registers and is reached.
func TestCustomHandler(t *testing.T) {
	for _, network := range []string{"true", "false"} {
		rendered, err := render(t, "--values", "testdata/custom.values.yaml", "--set", "custom.discovery.useNetworkConnection="+network,
			"--set", "global.host.handlers=/sockets,global.nodePlane.namespace=nodes,global.imagePullSecrets[0].name=ours")
		require.NoError(t, err)
		for _, daemonSet := range decode[appsv1.DaemonSet](t, rendered, "DaemonSet") {
			if daemonSet.Name != "lamp-discovery-daemonset" {
				require.Len(t, daemonSet.Spec.Template.Spec.ImagePullSecrets, 1, daemonSet.Name)
				continue
			}
			pod := daemonSet.Spec.Template.Spec
			require.Equal(t, "nodes", daemonSet.Namespace)
			require.Len(t, pod.ImagePullSecrets, 2)
			require.Equal(t, "/sockets", pod.Volumes[0].HostPath.Path)
			require.Equal(t, network == "true", pod.Containers[0].VolumeMounts[0].ReadOnly, "a handler without a socket only registers")
			require.Equal(t, network == "true", len(pod.Containers[0].Env) == 2, "POD_IP")
			require.False(t, *pod.AutomountServiceAccountToken)

			policies := decode[networkingv1.NetworkPolicy](t, rendered, "NetworkPolicy")
			var policy networkingv1.NetworkPolicy
			for _, policy = range policies {
				if policy.Name == "lamp-discovery" {
					break
				}
			}
			require.Equal(t, daemonSet.Spec.Template.Labels["app.kubernetes.io/name"], policy.Spec.PodSelector.MatchLabels["app.kubernetes.io/name"])
			require.Equal(t, daemonSet.Spec.Selector.MatchLabels, policy.Spec.PodSelector.MatchLabels)
			ports := 0
			for _, ingress := range policy.Spec.Ingress {
				for _, port := range ingress.Ports {
					if port.Port.StrVal == "discovery" {
						ports++
					}
				}
			}
			require.Equal(t, network == "true", ports == 1)
		}
	}
	_, err := render(t, set("custom.discovery.enabled=true")...)
	require.ErrorContains(t, err, "custom.discovery.enabled requires custom.discovery.image.repository")
}
