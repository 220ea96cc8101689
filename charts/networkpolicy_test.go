package charts_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// TestNetworkPolicies checks what each service can reach and who can reach it. It evaluates the
// policies by their labels and ports, because no maintained library does.
func TestNetworkPolicies(t *testing.T) {
	expected := map[string][]string{
		"registrar":               {"from Pods to metrics"},
		"config-plugin-allocator": {"from Pods to metrics"},
		"device-plugin-host":      {"from Pods to metrics", "to DNS", "to instance-writer 9443"},
		"dra-kubelet-plugin":      {"from Pods to metrics", "to DNS", "to instance-writer 9443"},
		"dra-controller":          {"from Pods to metrics", "to DNS", "to anywhere TCP"},
		"discovery-operator":      {"from Pods to metrics", "to DNS", "to instance-writer 9443", "to Pods TCP"},
		"instance-writer": {"from Pods to metrics", "from discovery-operator,device-plugin-host,dra-kubelet-plugin,agent to grpc",
			"to DNS", "to anywhere TCP"},
		"broker-controller": {"from Pods to metrics", "from anywhere to webhook", "to DNS", "to broker-controller 8443", "to anywhere TCP"},
		"console":           {"from Pods to metrics", "from anywhere to https", "to DNS", "to anywhere TCP"},
		"cleanup":           {"from Pods to metrics", "to DNS", "to anywhere TCP"},
	}
	values := append(set("global.resources=dra", "console.enabled=true"), allHandlers(t)...)
	for _, handler := range sources(t).Handlers {
		expected[handler.Service] = []string{"from Pods to metrics", "from discovery-operator,agent to discovery"}
		if *handler.Network {
			expected[handler.Service] = append(expected[handler.Service], "to DNS", "to anywhere TCP,UDP")
		}
		values = append(values, set(handler.Service+".useNetworkConnection=true")...)
		if handler.HostNetwork {
			values = append(values, set(handler.Service+".hostNetwork=false")...)
		}
	}
	require.Equal(t, expected, traffic(t, values))

	agent := traffic(t, append(set("global.resources=devicePlugin", "global.agent.enabled=true", "global.agent.handlers={udev,debug-echo,onvif,opcua}", "agent.hostNetwork=true"),
		"--set-json", `global.networkPolicy.nodes=[{"ipBlock":{"cidr":"192.0.2.0/24"}}]`))
	require.NotContains(t, agent, "agent", "no policy selects Pods on the host network")
	require.Contains(t, agent["instance-writer"], "from discovery-operator,device-plugin-host,agent,192.0.2.0/24 to grpc")
}

// traffic returns the rules of the NetworkPolicies by component. All Pods are selected by the
// policy that denies everything, and those on the Pod network by one other.
func traffic(t *testing.T, values []string) map[string][]string {
	t.Helper()
	rendered, err := render(t, values...)
	require.NoError(t, err)
	policies := decode[networkingv1.NetworkPolicy](t, rendered, "NetworkPolicy")
	rules := map[string][]string{}
	for _, workload := range workloads(t, rendered) {
		pod := workload.Spec.Template
		selected := slices.DeleteFunc(slices.Clone(policies), func(p networkingv1.NetworkPolicy) bool {
			return !selects(t, &p.Spec.PodSelector, pod.Labels)
		})
		if pod.Spec.HostNetwork {
			require.Len(t, selected, 1, pod.Labels)
			continue
		}
		require.Len(t, selected, 2, pod.Labels)
		rules[component(workload)] = nil // a component can have two workloads
		for _, policy := range selected {
			require.Len(t, policy.Spec.PolicyTypes, 2)
			rules[component(workload)] = append(rules[component(workload)], describe(t, policy, pod.Spec)...)
		}
	}
	return rules
}

func selects(t *testing.T, selector *metav1.LabelSelector, set map[string]string) bool {
	t.Helper()
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	require.NoError(t, err)
	return parsed.Matches(labels.Set(set))
}

func describe(t *testing.T, policy networkingv1.NetworkPolicy, pod corev1.PodSpec) []string {
	t.Helper()
	var rules []string
	for _, rule := range policy.Spec.Ingress {
		rules = append(rules, "from "+peers(rule.From)+" to "+ports(rule.Ports))
		if len(pod.Containers[0].Ports) > 0 {
			require.Contains(t, portNames(pod), ports(rule.Ports))
		}
	}
	for _, rule := range policy.Spec.Egress {
		text := "to " + peers(rule.To) + " " + ports(rule.Ports)
		rules = append(rules, strings.Replace(text, "anywhere 53,53,5353,5353", "DNS", 1))
	}
	return rules
}

func peers(list []networkingv1.NetworkPolicyPeer) string {
	var names []string
	for _, peer := range list {
		switch {
		case peer.IPBlock != nil:
			names = append(names, peer.IPBlock.CIDR)
		case peer.PodSelector != nil:
			names = append(names, peer.PodSelector.MatchExpressions[0].Values...)
		default:
			names = append(names, "Pods")
		}
	}
	if len(names) == 0 {
		return "anywhere"
	}
	return strings.Join(names, ",")
}

func ports(list []networkingv1.NetworkPolicyPort) string {
	var names []string
	for _, port := range list {
		if port.Port == nil {
			names = append(names, string(*port.Protocol))
		} else {
			names = append(names, port.Port.String())
		}
	}
	return strings.Join(names, ",")
}

func portNames(pod corev1.PodSpec) []string {
	var names []string
	for _, port := range pod.Containers[0].Ports {
		names = append(names, port.Name)
	}
	return names
}
