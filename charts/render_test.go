package charts_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

var update = flag.Bool("update", false, "write the golden files")

// components returns the sub-charts with a running workload in an installation with device plugins.
func components(t *testing.T) []string {
	t.Helper()
	names := []string{
		"registrar", "discovery-operator", "device-plugin-host", "config-plugin-allocator", "instance-writer", "broker-controller",
	}
	for _, handler := range sources(t).Handlers {
		if handler.Default {
			names = append(names, handler.Service)
		}
	}
	return names
}

// allHandlers returns the arguments of helm that enable all handlers.
func allHandlers(t *testing.T) []string {
	t.Helper()
	var values []string
	for _, handler := range sources(t).Handlers {
		values = append(values, handler.Value+"=true")
	}
	return set(values...)
}

func TestLint(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.values.yaml")
	require.NoError(t, err)
	arguments := [][]string{{"akri"}, {"akri-crds"}}
	for _, file := range files {
		arguments = append(arguments, []string{"akri", "--values", file})
	}
	for _, chart := range arguments {
		_, err := run(t, "helm", append([]string{"lint", "--strict"}, chart...)...)
		require.NoError(t, err)
	}
}

func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.values.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			rendered, err := render(t, "--values", file)
			require.NoError(t, err)
			golden := strings.TrimSuffix(file, ".values.yaml") + ".golden.yaml"
			if *update {
				require.NoError(t, os.WriteFile(golden, []byte(rendered), 0o600))
			}
			expected, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(expected), rendered)
		})
	}
}

func TestUnknownValuesAreErrors(t *testing.T) {
	t.Parallel()
	for value, message := range map[string]string{
		"registar.enabled=false":                                      "registar",
		"global.image.tags=x":                                         "tags",
		"global.host.kublet=/x":                                       "kublet",
		"global.nodePlane.tolerations[0].efect=NoSchedule":            "efect",
		"agents.resources=x":                                          "agents",
		"global.agent.enable=true":                                    "enable",
		"global.agent.handlers={debugEcho}":                           "handlers",
		"global.agent.enabled=true,agent.metricPort=1":                "metricPort",
		"prometheus.enable=true":                                      "enable",
		"prometheus.rules.for.AkriHandlersOffline=1m":                 "AkriHandlersOffline",
		"prometheus.rules.disabled={AkriLeader}":                      "disabled",
		"prometheus.dashboard.label.a=b":                              "label",
		"registrar.replicas=2":                                        "replicas",
		"registrar.image.repo=x":                                      "repo",
		"registrar.extraArgs={log-level=warn}":                        "extraArgs",
		"registrar.strategy.type=Recreate":                            "strategy",
		"registrar.extraEnv[0].valueForm.x=y":                         "valueForm",
		"instance-writer.strategy.type=OnDelete":                      "type",
		"instance-writer.topologySpreadConstraints[0].maxSkew=1":      "topologyKey",
		"registrar.image.digest=sha256:1":                             "digest",
		"discovery-operator.resources.limit.memory=1Gi":               "limit",
		"device-plugin-host.tolerations[0].keys=x":                    "keys",
		"config-plugin-allocator.image.pullPolicy=Sometimes":          "pullPolicy",
		"instance-writer.replicas=two":                                "replicas",
		"global.networkPolicy.enable=true":                            "enable",
		"global.networkPolicy.metrics[0].namespace=x":                 "namespace",
		"global.metrics.authorisation=true":                           "authorisation",
		"broker-controller.replica=2":                                 "replica",
		"broker-controller.securityContext.readOnlyRootFs=x":          "readOnlyRootFs",
		"handler-udev.host.udevs=/x":                                  "udevs",
		"handler-debug-echo.share=true":                               "share",
		"onvif.discovery.enable=true":                                 "enable",
		"cleanup.timeout=soon":                                        "timeout",
		"udev.discovery.enable=true":                                  "enable",
		"udev.configuration.discoveryDetails.rules=x":                 "rules",
		"udev.configuration.brokerPod.image.repo=x":                   "repo",
		"onvif.configuration.brokerPod.extraEnv[0].value=x":           "name",
		"onvif.configuration.brokerPod.podSecurityContext.fsgroup=1":  "fsgroup",
		"onvif.configuration.brokerJob.readinessProbe.x=y":            "readinessProbe",
		"debugEcho.configuration.capacity=0":                          "capacity",
		"custom.configuration.handlerName=x":                          "handlerName",
		"onvif.configuration.discoveryDetails.scopes.item=x":          "item",
		"opcua.configuration.brokerJob.restartPolicy=Always":          "restartPolicy",
		"opcua.configuration.instanceService.targetport=80":           "targetport",
		"handler-opcua.enabled=true,handler-opcua.hostNetworks=x":     "hostNetworks",
		"opcua.discovery.enable=true":                                 "enable",
		"udev.discovery.useNetworkConnection=maybe":                   "useNetworkConnection",
		"handler-udev.useNetworkConnections=true":                     "useNetworkConnections",
		"broker-controller.webhook.enable=true":                       "enable",
		"instance-writer.rbac.secrets=all":                            "secrets",
		"instance-writer.rbac.configMaps={Default}":                   "configMaps",
		"handler-onvif.enabled=true,handler-onvif.metricsAddress=lan": "metricsAddress",
		"broker-controller.webhook.authorise=false":                   "authorise",
		"broker-controller.allowedNamespaces.enable=true":             "enable",
		"global.separateClusterServices=yes":                          "separateClusterServices",
		"global.resources=DRA":                                        "resources",
		"console.enabled=true,console.allowFroms[0].ipBlock.cidr=x":   "allowFroms",
		"console.enabled=true,console.proxy.containers[0].name=x":     "image",
	} {
		t.Run(value, func(t *testing.T) {
			_, err := render(t, set(value)...)
			require.ErrorContains(t, err, message)
			require.ErrorContains(t, err, "values don't meet the specifications of the schema")
		})
	}
}

func TestContradictingValuesAreErrors(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		values  []string
		message string
	}{
		"metrics without a certificate": {
			set("global.metrics.authorization=true", "broker-controller.webhook.enabled=false"), "requires broker-controller.webhook.enabled",
		},
		"udev without a rule":             {set("udev.configuration.enabled=true"), "requires at least one udev rule"},
		"custom without a handler name":   {set("custom.configuration.enabled=true"), "discoveryHandlerName"},
		"debugEcho shared and not shared": {set("debugEcho.configuration.enabled=true", "debugEcho.configuration.shared=false"), "debugEcho.configuration.shared: set handler-debug-echo.shared=false too"},
		"debugEcho in the agent, shared and not shared": {
			set("global.agent.enabled=true", "debugEcho.configuration.enabled=true", "debugEcho.configuration.shared=false"),
			"(agent.debugEchoShared=false if the agent runs the handler)",
		},
		"debugEcho in the agent, not shared by the value of the Pod": {
			set("global.agent.enabled=true", "debugEcho.configuration.enabled=true", "debugEcho.configuration.shared=false", "handler-debug-echo.shared=false"),
			"agent.debugEchoShared is true; set both to the same value",
		},
		"agent.enabled":               {set("agent.enabled=true"), "set global.agent.enabled"},
		"agent.full":                  {set("agent.full=true"), "set global.agent.enabled"},
		"agent without the registrar": {set("global.agent.enabled=true", "registrar.enabled=false"), "registrar.enabled is false, but global.agent.enabled is true"},
		"disabled handler in the agent": {
			set("global.agent.enabled=true", "udev.discovery.enabled=false"), "handler-udev is disabled, but global.agent.handlers contains udev",
		},
		"onvif in an agent on the Pod network": {set("global.agent.enabled=true", "global.agent.handlers={onvif}"), "set agent.hostNetwork"},
		"network connection of a handler in the agent": {
			set("global.agent.enabled=true", "debugEcho.discovery.useNetworkConnection=true"), "set debugEcho.discovery.useNetworkConnection=false",
		},
		"agent without the driver of Dynamic Resource Allocation": {
			set("global.agent.enabled=true", "global.resources=dra", "dra-kubelet-plugin.enabled=false"),
			"dra-kubelet-plugin.enabled is false, but global.agent.enabled is true",
		},
		"a decision without the service that takes it": {
			set("global.resources=auto", "dra-controller.enabled=false"), "dra-controller.enabled is false, but global.resources=auto needs it",
		},
		"Dynamic Resource Allocation before 1.34": {
			append(set("global.resources=dra"), "--kube-version=1.33.9"), "requires Kubernetes 1.34 or later",
		},
		"agent on the host network with a NetworkPolicy": {
			set("global.agent.enabled=true", "agent.hostNetwork=true"), "set global.networkPolicy.nodes to the addresses of the nodes",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := render(t, c.values...)
			require.ErrorContains(t, err, c.message)
		})
	}
}

func TestEachServiceCanBeDisabled(t *testing.T) {
	t.Parallel()
	for _, name := range components(t) {
		t.Run(name, func(t *testing.T) {
			rendered, err := render(t, set("global.resources=devicePlugin", name+".enabled=false")...)
			require.NoError(t, err)
			require.NotContains(t, rendered, "app.kubernetes.io/component: "+name+"\n")
			for _, other := range components(t) {
				if other != name {
					require.Contains(t, rendered, "app.kubernetes.io/component: "+other+"\n")
				}
			}
		})
	}
}

func TestValuesOfUpstreamAkri(t *testing.T) {
	for value, absent := range map[string]string{
		"udev.discovery.enabled=false":      "component: handler-udev",
		"debugEcho.discovery.enabled=false": "component: handler-debug-echo",
		"cleanupHook.enabled=false":         "component: cleanup",
	} {
		rendered, err := render(t, set(value)...)
		require.NoError(t, err)
		require.NotContains(t, rendered, absent)
	}
	rendered, err := render(t)
	require.NoError(t, err)
	require.NotContains(t, rendered, "component: handler-opcua")
	rendered, err = render(t, set("opcua.discovery.enabled=true")...)
	require.NoError(t, err)
	require.Contains(t, rendered, "component: handler-opcua")

	// The names of Instances and resources begin with that of the Configuration.
	values, names := companions(t, "configuration"), map[string]string{}
	values["custom.configuration.discoveryHandlerName"] = "custom"
	for handler := range upstreamSources(t) {
		names[handler] = "some-" + strings.ToLower(handler)
		values[handler+".configuration.name"] = names[handler]
	}
	rendered, err = render(t, setJSON(t, values)...)
	require.NoError(t, err)
	found := map[string]string{}
	for _, configuration := range decode[akriv0.Configuration](t, rendered, "Configuration") {
		found[configuration.Spec.DiscoveryHandler.Name] = configuration.Name
	}
	require.Equal(t, names, found)
}

// TestUseNetworkConnection checks upstream Akri's value, which applies to one handler, and the
// value of the sub-chart.
func TestUseNetworkConnection(t *testing.T) {
	t.Parallel()
	for _, handler := range sources(t).Handlers {
		service := handler.Service
		values := map[string]int{service + ".useNetworkConnection=true": 1, service + ".useNetworkConnection=false": 0}
		if handler.Upstream() {
			values[handler.Name+".discovery.useNetworkConnection=true"] = 1
			values[handler.Name+".discovery.useNetworkConnection=false"] = 0
		}
		for value, expected := range values {
			rendered, err := render(t, append(set(handler.Value+"=true", value), "--set-string", service+".env.AKRI_PORT=10001")...)
			require.NoError(t, err)
			require.Equal(t, expected, strings.Count(rendered, "- name: POD_IP\n"), value)
			require.Equal(t, expected, strings.Count(rendered, "{name: discovery, containerPort: 10001}"), value)
			require.Equal(t, expected, strings.Count(daemonSetOf(t, rendered, service), "fieldPath: status.podIP"), value)
		}
	}
}

// TestMetricsAddress checks which addresses of the node serve /metrics.
func TestMetricsAddress(t *testing.T) {
	for name, c := range map[string]struct{ values, address, probe string }{
		"node":        {"handler-onvif.hostNetwork=true", "[$(HOST_IP)]:9398", "{path: /healthz, port: metrics}"},
		"loopback":    {"handler-onvif.metricsAddress=loopback", "127.0.0.1:9398", "{path: /healthz, port: metrics, host: 127.0.0.1}"},
		"all":         {"handler-onvif.metricsAddress=all", ":9398", "{path: /healthz, port: metrics}"},
		"udev":        {"handler-udev.hostNetwork=true,handler-udev.metricsAddress=loopback", "127.0.0.1:9399", "{path: /healthz, port: metrics, host: 127.0.0.1}"},
		"Pod network": {"global.agent.enabled=true", ":9397", "{path: /healthz, port: metrics}"},
		"agent":       {"global.agent.enabled=true,agent.hostNetwork=true,global.networkPolicy.enabled=false", "[$(HOST_IP)]:9397", "{path: /healthz, port: metrics}"},
	} {
		t.Run(name, func(t *testing.T) {
			rendered, err := render(t, set("onvif.discovery.enabled=true", c.values)...)
			require.NoError(t, err)
			require.Contains(t, rendered, "name: AKRI_ADMIN_ADDRESS\n              value: \""+c.address+"\"\n")
			require.Contains(t, rendered, "httpGet: "+c.probe+"\n")
		})
	}
}

// TestRelay checks that the Pods with dra-kubelet-plugin have a relay in the form of the agent,
// too, and only there the directory of the kubelet's plugins.
func TestRelay(t *testing.T) {
	const mount = "mountPath: /var/lib/kubelet/plugins_registry"
	for name, c := range map[string]struct {
		values  []string
		address string
	}{
		"device plugins":                {set("global.resources=devicePlugin", "global.agent.enabled=true"), ""},
		"dra-kubelet-plugin":            {set("global.resources=dra"), ":9396"},
		"the agent":                     {set("global.resources=dra", "global.agent.enabled=true"), ":9396"},
		"the agent in either form":      {set("global.resources=auto", "global.agent.enabled=true"), ":9396"},
		"the agent on the host network": {set("global.resources=dra", "global.agent.enabled=true", "agent.hostNetwork=true", "global.networkPolicy.enabled=false"), "127.0.0.1:9396"},
	} {
		t.Run(name, func(t *testing.T) {
			rendered, err := render(t, c.values...)
			require.NoError(t, err)
			_, relay, found := strings.Cut(rendered, "        - name: relay\n")
			require.Equal(t, c.address != "", found)
			require.Equal(t, found, strings.Contains(rendered, mount))
			if found {
				relay, _, _ = strings.Cut(relay, "      volumes:\n")
				require.Equal(t, 1, strings.Count(rendered, mount))
				require.Contains(t, relay, mount)
				require.Contains(t, relay, "args: [relay]\n")
				require.Contains(t, relay, "name: AKRI_ADMIN_ADDRESS\n              value: \""+c.address+"\"\n")
				require.Equal(t, c.address == "127.0.0.1:9396", strings.Contains(relay, "{path: /readyz, port: relay, host: 127.0.0.1}"))
			}
		})
	}
}

func TestHandlerOnvifRunsOnTheHostNetwork(t *testing.T) {
	rendered, err := render(t)
	require.NoError(t, err)
	require.NotContains(t, rendered, "component: handler-onvif")
	for _, value := range []string{"onvif.discovery.enabled=true", "handler-onvif.enabled=true"} {
		rendered, err = render(t, set(value, "handler-onvif.interfaces={eth*,!veth*}")...)
		require.NoError(t, err)
		require.Contains(t, rendered, "name: akri-onvif-discovery-daemonset")
		require.Contains(t, rendered, "hostNetwork: true")
		require.Contains(t, rendered, `value: "eth*,!veth*"`)
	}
}

// TestMetricsPorts checks that all handlers can run on the host network of one node, and that their
// port on the Pod network is 8080. TestHostPorts checks that their ports differ.
func TestMetricsPorts(t *testing.T) {
	for _, handler := range sources(t).Handlers {
		port := values(t, handler.Service).MetricsPort
		if port == 0 {
			continue
		}
		for hostNetwork, expected := range map[string]int{"true": port, "false": 8080} {
			rendered, err := render(t, set(handler.Value+"=true", handler.Service+".hostNetwork="+hostNetwork)...)
			require.NoError(t, err)
			daemonSet := daemonSetOf(t, rendered, handler.Service)
			require.Contains(t, daemonSet, fmt.Sprintf("{name: metrics, containerPort: %d}", expected))
			require.Equal(t, hostNetwork == "true", strings.Contains(daemonSet, "AKRI_ADMIN_ADDRESS"))
		}
	}
}

// daemonSetOf returns the DaemonSet of a handler in rendered manifests.
func daemonSetOf(t *testing.T, rendered, service string) string {
	t.Helper()
	_, daemonSet, found := strings.Cut(rendered, "kind: DaemonSet\nmetadata:\n  name: akri-"+strings.TrimPrefix(service, "handler-")+"-discovery-daemonset\n")
	require.True(t, found, service)
	daemonSet, _, _ = strings.Cut(daemonSet, "\n---\n")
	return daemonSet
}

// TestRightsOnProperties checks which Secrets and ConfigMaps can be read: those of all namespaces,
// of a list of namespaces, or none.
func TestRightsOnProperties(t *testing.T) {
	for key, resource := range map[string]string{"secrets": "secrets", "configMaps": "configmaps"} {
		for value, expected := range map[string]struct{ reads, roles int }{
			`"cluster"`: {1, 0}, `"none"`: {0, 0}, `[]`: {0, 0}, `["a","b"]`: {2, 2},
		} {
			arguments := append(set("broker-controller.enabled=false", "cleanup.enabled=false"), "--set-json", "instance-writer.rbac."+key+"="+value)
			rendered, err := render(t, arguments...)
			require.NoError(t, err)
			named := strings.Count(rendered, "resources: ["+resource+"]\n    resourceNames:")
			require.Equal(t, expected.reads, strings.Count(rendered, "resources: ["+resource+"]\n")-named, value)
			require.Equal(t, expected.roles, strings.Count(rendered, "\n  kind: Role\n  name: akri-instance-writer-"+resource+"\n"), value)
		}
	}
}

func TestEachServiceCanHaveItsOwnImage(t *testing.T) {
	t.Parallel()
	for _, name := range components(t) {
		rendered, err := render(t, set("global.image.tag=v1", "global.image.registry=registry.example.com/akri", name+".image.tag=v2")...)
		require.NoError(t, err)
		for _, other := range components(t) {
			tag := map[bool]string{true: "v2", false: "v1"}[other == name]
			require.Contains(t, rendered, "image: registry.example.com/akri/"+other+":"+tag+"\n")
		}
		rendered, err = render(t, set(name+".image.repository=example.com/mine", name+".image.tag=7")...)
		require.NoError(t, err)
		require.Contains(t, rendered, "image: example.com/mine:7\n")
		digest := "sha256:" + strings.Repeat("a", 64)
		rendered, err = render(t, set(name+".image.digest="+digest)...)
		require.NoError(t, err)
		require.Contains(t, rendered, "image: ghcr.io/akri-mesh/"+name+":v0.1.0@"+digest+"\n")
	}
}

func TestAgentReplacesServices(t *testing.T) {
	replaced := []string{"registrar", "discovery-operator", "device-plugin-host", "config-plugin-allocator"}
	for name, c := range map[string]struct{ values, present, absent []string }{
		"default handlers": {
			present: []string{"agent", "instance-writer", "broker-controller", "cleanup"},
			absent:  append([]string{"handler-udev", "handler-debug-echo", "handler-opcua", "handler-onvif"}, replaced...),
		},
		"handlers in the agent and in Pods": {
			values:  set("global.agent.handlers={opcua}", "onvif.discovery.enabled=true"),
			present: []string{"agent", "handler-udev", "handler-debug-echo", "handler-onvif"},
			absent:  append([]string{"handler-opcua"}, replaced...),
		},
		"no handlers in the agent": {
			values:  append(set("udev.discovery.enabled=false"), "--set-json", "global.agent.handlers=[]"),
			present: []string{"agent", "handler-debug-echo"},
			absent:  append([]string{"handler-udev"}, replaced...),
		},
		"Dynamic Resource Allocation": { // device plugins run on the nodes that keep them
			values:  set("global.resources=dra"),
			present: []string{"agent", "dra-controller", "device-plugin-host", "config-plugin-allocator"},
			absent:  []string{"registrar", "discovery-operator", "dra-kubelet-plugin"},
		},
		"the cluster decides": {
			values:  set("global.resources=auto"),
			present: []string{"agent", "dra-controller"},
			absent:  append([]string{"dra-kubelet-plugin"}, replaced...),
		},
		"host network": {
			values:  set("global.agent.handlers={onvif}", "agent.hostNetwork=true", "global.networkPolicy.enabled=false"),
			present: []string{"agent", "handler-udev"},
			absent:  append([]string{"handler-onvif"}, replaced...),
		},
	} {
		t.Run(name, func(t *testing.T) {
			rendered, err := render(t, append(set("global.agent.enabled=true"), c.values...)...)
			require.NoError(t, err)
			for _, component := range c.present {
				require.Contains(t, rendered, "app.kubernetes.io/component: "+component+"\n")
			}
			for _, component := range c.absent {
				require.NotContains(t, rendered, "app.kubernetes.io/component: "+component+"\n")
			}
		})
	}
}

// TestAuto checks that by default the cluster decides how Pods get devices, that the manifests do
// not depend on the version of Kubernetes, and that older API servers accept them.
func TestAuto(t *testing.T) {
	t.Parallel()
	for _, values := range [][]string{nil, set("global.agent.enabled=true", "console.enabled=true")} {
		var first string
		for _, version := range []string{"1.30.0", "1.33.9", "1.34.0", "1.37.2"} {
			rendered, err := render(t, append([]string{"--kube-version=" + version}, values...)...)
			require.NoError(t, err)
			require.NotContains(t, rendered, "apiVersion: resource.k8s.io")
			require.Contains(t, rendered, "name: akri-resources\n")
			if first == "" {
				first = rendered
			}
			require.Equal(t, first, rendered, version)
		}
		auto, err := render(t, append(set("global.resources=auto"), values...)...)
		require.NoError(t, err)
		require.Equal(t, auto, first)
	}
}

// TestAutoWithoutAPI checks that an API server without Dynamic Resource Allocation accepts all
// objects, also the rules about objects that it does not serve.
func TestAutoWithoutAPI(t *testing.T) {
	t.Parallel()
	without, err := server.Join(t.Context(), "--runtime-config=resource.k8s.io/v1=false")
	require.NoError(t, err)
	t.Cleanup(without.Stop)
	rendered, err := render(t, append(set("console.enabled=true"), "--no-hooks", "--namespace", "decided")...)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "auto.yaml")
	require.NoError(t, os.WriteFile(file, []byte(rendered), 0o600))
	config := "--kubeconfig=" + kubeconfigOf(t, without)
	_, err = run(t, "kubectl", config, "create", "namespace", "decided")
	require.NoError(t, err)
	_, err = run(t, "kubectl", config, "apply", "--dry-run=server", "-f", file) // other tests have created some
	require.NoError(t, err)
	_, err = run(t, "kubectl", config, "delete", "namespace", "decided", "--wait=false")
	require.NoError(t, err)
}

// TestHooks checks which objects helm creates while it uninstalls a release, and that it removes
// them. Each has one hook and a name of its own, as Argo CD requires.
func TestHooks(t *testing.T) {
	after := map[string]string{"akri-cleanup": "post-delete"}
	both := map[string]string{"akri-cleanup": "post-delete", "akri-cleanup-brokers": "pre-delete"}
	kinds := []string{"Job", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "NetworkPolicy"}
	for value, expected := range map[string]map[string]string{
		"global.resources=devicePlugin":                  after,
		"global.resources=dra":                           both,
		"global.resources=dra,global.agent.enabled=true": both,
		"global.resources=auto":                          both,
		"global.resources=dra,cleanup.enabled=false":     {},
		"global.resources=dra,cleanupHook.enabled=false": {},
	} {
		rendered, err := render(t, set(value)...)
		require.NoError(t, err)
		for _, kind := range kinds {
			found := map[string]string{}
			for _, object := range decode[metav1.PartialObjectMetadata](t, rendered, kind) {
				hook := object.Annotations["helm.sh/hook"]
				require.Equal(t, hook != "", strings.HasPrefix(object.Name, "akri-cleanup"), "%s: %s", value, object.Name)
				if hook == "" {
					continue
				}
				require.NotContains(t, found, object.Name)
				found[object.Name] = hook
				require.Equal(t, "before-hook-creation,hook-succeeded,hook-failed", object.Annotations["helm.sh/hook-delete-policy"])
			}
			require.Equal(t, expected, found, "%s: %s", value, kind)
		}
	}
}

// TestTransport checks the two origins of the certificates.
func TestTransport(t *testing.T) {
	const ownCA = "resourceNames: [akri-ca]"
	rendered, err := render(t)
	require.NoError(t, err)
	require.Contains(t, rendered, ownCA)

	rendered, err = render(t, set("global.resources=devicePlugin", "global.transport.existingSecret=mine", "global.transport.caConfigMap=bundle")...)
	require.NoError(t, err)
	require.NotContains(t, rendered, "akri-ca")
	require.Contains(t, rendered, "secretName: mine")
	require.Equal(t, 2, strings.Count(rendered, "name: bundle"), "discovery-operator and device-plugin-host")

	_, err = render(t, set("global.transport.existingSecret=mine")...)
	require.ErrorContains(t, err, "set global.transport.caConfigMap to the ConfigMap")
}
