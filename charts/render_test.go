package charts_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files")

// components are the sub-charts that run something while Akri is installed.
var components = []string{
	"registrar", "discovery-operator", "device-plugin-host", "config-plugin-allocator", "instance-writer", "broker-controller",
	"handler-udev", "handler-debug-echo",
}

func TestLint(t *testing.T) {
	files, err := filepath.Glob("testdata/*.values.yaml")
	require.NoError(t, err)
	arguments := [][]string{{"akri"}, {"akri-crds"}}
	for _, file := range files {
		arguments = append(arguments, []string{"akri", "--values", file})
	}
	for _, chart := range arguments {
		_, err := program(t, "helm", append([]string{"lint", "--strict"}, chart...)...)
		require.NoError(t, err)
	}
}

func TestGolden(t *testing.T) {
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
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), rendered)
		})
	}
}

func TestMisspeltValuesAreRefused(t *testing.T) {
	for value, want := range map[string]string{
		"registar.enabled=false":                                  "registar",
		"global.image.tags=x":                                     "tags",
		"global.host.kublet=/x":                                   "kublet",
		"global.nodePlane.tolerations[0].efect=NoSchedule":        "efect",
		"agents.resources=x":                                      "agents",
		"global.agent.enable=true":                                "enable",
		"global.agent.handlers={debugEcho}":                       "handlers",
		"global.agent.enabled=true,agent.metricPort=1":            "metricPort",
		"prometheus.enable=true":                                  "enable",
		"registrar.replicas=2":                                    "replicas",
		"registrar.image.repo=x":                                  "repo",
		"discovery-operator.resources.limit.memory=1Gi":           "limit",
		"device-plugin-host.tolerations[0].keys=x":                "keys",
		"config-plugin-allocator.image.pullPolicy=Sometimes":      "pullPolicy",
		"instance-writer.replicas=two":                            "replicas",
		"instance-writer.networkPolicy.enable=true":               "enable",
		"broker-controller.replica=2":                             "replica",
		"broker-controller.securityContext.readOnlyRootFs=x":      "readOnlyRootFs",
		"handler-udev.host.udevs=/x":                              "udevs",
		"handler-debug-echo.share=true":                           "share",
		"onvif.discovery.enable=true":                             "enable",
		"cleanup.timeout=soon":                                    "timeout",
		"udev.discovery.enable=true":                              "enable",
		"udev.configuration.discoveryDetails.rules=x":             "rules",
		"udev.configuration.brokerPod.image.repo=x":               "repo",
		"debugEcho.configuration.capacity=0":                      "capacity",
		"custom.configuration.handlerName=x":                      "handlerName",
		"onvif.configuration.discoveryDetails.scopes.item=x":      "item",
		"opcua.configuration.brokerJob.restartPolicy=Always":      "restartPolicy",
		"opcua.configuration.instanceService.targetport=80":       "targetport",
		"handler-opcua.enabled=true,handler-opcua.hostNetworks=x": "hostNetworks",
		"opcua.discovery.enable=true":                             "enable",
		"broker-controller.webhook.enable=true":                   "enable",
		"discovery-operator.rbac.secrets=all":                     "secrets",
		"discovery-operator.rbac.secrets={Default}":               "secrets",
	} {
		t.Run(value, func(t *testing.T) {
			_, err := render(t, set(value)...)
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, "values don't meet the specifications of the schema")
		})
	}
}

func TestWhatCannotWorkIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		values []string
		want   string
	}{
		"udev without a rule":           {set("udev.configuration.enabled=true"), "needs at least one rule"},
		"custom without a handler name": {set("custom.configuration.enabled=true"), "discoveryHandlerName"},
		"debug-echo shared and not":     {set("debugEcho.configuration.enabled=true", "debugEcho.configuration.shared=false"), "set both"},
		"debug-echo in the agent, shared and not": {
			set("global.agent.enabled=true", "debugEcho.configuration.enabled=true", "debugEcho.configuration.shared=false"),
			"agent.debugEchoShared, which decides, is true; set both",
		},
		"the agent beside what it replaces": {set("agent.enabled=true"), "say global.agent.enabled"},
		"an agent without a part":           {set("global.agent.enabled=true", "registrar.enabled=false"), "registrar.enabled is false, but it is a part of the agent"},
		"a handler in the agent, switched off": {
			set("global.agent.enabled=true", "udev.discovery.enabled=false"), "the handler udev is switched off, but global.agent.handlers has it",
		},
		"onvif in an agent on the pod network": {set("global.agent.enabled=true", "global.agent.handlers={onvif}"), "set agent.hostNetwork"},
		"an agent that a NetworkPolicy keeps out": {
			set("global.agent.enabled=true", "agent.hostNetwork=true"), "set instance-writer.networkPolicy.enabled=false",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := render(t, c.values...)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func TestEachServiceCanBeSwitchedOff(t *testing.T) {
	for _, name := range components {
		t.Run(name, func(t *testing.T) {
			rendered, err := render(t, set(name+".enabled=false")...)
			require.NoError(t, err)
			require.NotContains(t, rendered, "app.kubernetes.io/component: "+name+"\n")
			for _, other := range components {
				if other != name {
					require.Contains(t, rendered, "app.kubernetes.io/component: "+other+"\n")
				}
			}
		})
	}
}

func TestAkrisOwnSwitches(t *testing.T) {
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
}

func TestOnvifHandlerRunsOnTheHostNetworkWhenSwitchedOn(t *testing.T) {
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

func TestTheRightToReadSecretsIsOfTheClusterOrSomeNamespacesOrNobody(t *testing.T) {
	for value, want := range map[string]struct{ reads, roles int }{
		`"cluster"`: {1, 0}, `"none"`: {0, 0}, `[]`: {0, 0}, `["a","b"]`: {2, 2},
	} {
		arguments := append(set("broker-controller.enabled=false", "cleanup.enabled=false"), "--set-json", "discovery-operator.rbac.secrets="+value)
		rendered, err := render(t, arguments...)
		require.NoError(t, err)
		require.Equal(t, want.reads, strings.Count(rendered, "resources: [secrets, configmaps]"), value)
		require.Equal(t, want.roles, strings.Count(rendered, "kind: RoleBinding\n"), value)
	}
}

func TestEachServiceCanBeReplacedByItsImageAlone(t *testing.T) {
	for _, name := range components {
		rendered, err := render(t, set("global.image.tag=v1", "global.image.registry=here:5000/akri", name+".image.tag=v2")...)
		require.NoError(t, err)
		for _, other := range components {
			tag := map[bool]string{true: "v2", false: "v1"}[other == name]
			require.Contains(t, rendered, "image: here:5000/akri/"+other+":"+tag+"\n")
		}
		rendered, err = render(t, set(name+".image.repository=example.com/mine", name+".image.tag=7")...)
		require.NoError(t, err)
		require.Contains(t, rendered, "image: example.com/mine:7\n")
	}
}

func TestTheAgentReplacesWhatItRuns(t *testing.T) {
	parts := []string{"registrar", "discovery-operator", "device-plugin-host", "config-plugin-allocator"}
	for name, c := range map[string]struct{ values, present, absent []string }{
		"as it comes": {
			present: []string{"agent", "instance-writer", "broker-controller", "cleanup"},
			absent:  append([]string{"handler-udev", "handler-debug-echo", "handler-opcua", "handler-onvif"}, parts...),
		},
		"with other handlers than those that are switched on": {
			values:  set("global.agent.handlers={opcua}", "onvif.discovery.enabled=true"),
			present: []string{"agent", "handler-udev", "handler-debug-echo", "handler-onvif"},
			absent:  append([]string{"handler-opcua"}, parts...),
		},
		"without handlers": {
			values:  append(set("udev.discovery.enabled=false"), "--set-json", "global.agent.handlers=[]"),
			present: []string{"agent", "handler-debug-echo"},
			absent:  append([]string{"handler-udev"}, parts...),
		},
		"on the host network": {
			values:  set("global.agent.handlers={onvif}", "agent.hostNetwork=true", "instance-writer.networkPolicy.enabled=false"),
			present: []string{"agent", "handler-udev"},
			absent:  append([]string{"handler-onvif"}, parts...),
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

// TestRights is the table of the architecture: nobody else may do anything with the API.
func TestRights(t *testing.T) {
	rights := map[string][]string{
		"akri-discovery-operator": {"configurations", "secrets", "configmaps"},
		"akri-instance-writer":    {"instances", "configurations", "configurations/status", "configurations/finalizers", "nodes", "events"},
		"akri-controller":         {"instances", "configurations", "instances/finalizers", "configurations/finalizers", "pods", "services", "jobs", "configurations", "events", "validatingwebhookconfigurations"},
		"akri-cleanup":            {"instances", "configurations", "configurations/status", "pods", "services", "jobs", "leases"},
	}
	requireRights(t, rights)
	// The others that it runs have none.
	rights["akri-agent"] = rights["akri-discovery-operator"]
	delete(rights, "akri-discovery-operator")
	requireRights(t, rights, "global.agent.enabled=true")
}

func requireRights(t *testing.T, want map[string][]string, values ...string) {
	t.Helper()
	rendered, err := render(t, set(values...)...)
	require.NoError(t, err)
	bound := map[string][]string{}
	for document := range strings.SplitSeq(rendered, "\n---\n") {
		var role rbacv1.ClusterRole
		require.NoError(t, yaml.Unmarshal([]byte(document), &role))
		if role.Kind != "ClusterRole" {
			continue
		}
		for _, rule := range role.Rules {
			require.NotContains(t, rule.Verbs, "*")
			require.NotContains(t, rule.Resources, "*")
			bound[role.Name] = append(bound[role.Name], rule.Resources...)
		}
	}
	require.Equal(t, want, bound)
	require.Equal(t, len(bound), strings.Count(rendered, "automountServiceAccountToken: true"), "a token is mounted only where there are rights")
}
