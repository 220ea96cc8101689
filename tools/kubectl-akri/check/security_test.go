package check_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/fixture"
	"akri.sh/tools/kubectl-akri/check"
)

const (
	values   = "values"
	upstream = "values of upstream Akri"
	authors  = "rights of authors"
	allowed  = "allowed namespaces"
)

// healthy returns a cluster in which all checks pass.
func healthy(t *testing.T) *explain.Snapshot {
	t.Helper()
	return apart(fixture.Load(t, fixtures+"healthy.yaml"))
}

// resultOf returns the result with the name.
func resultOf(t *testing.T, results []check.Result, name string) check.Result {
	t.Helper()
	i := slices.IndexFunc(results, func(r check.Result) bool { return r.Name == name })
	require.GreaterOrEqual(t, i, 0, "%s in %v", name, results)
	return results[i]
}

// TestWeakValues checks what follows from the values of the release.
func TestWeakValues(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*check.Facts)
		want   map[string]check.Outcome
	}{
		"weak value": {func(f *check.Facts) { f.Weakening["a.b"] = "a.b=1: bad" }, map[string]check.Outcome{values: check.Warning}},
		"value without effect": {
			func(f *check.Facts) { f.Upstream = []check.UpstreamValue{{Release: "a/b", Name: "c", Meaning: "d"}} },
			map[string]check.Outcome{upstream: check.Warning},
		},
		"values without effect unreadable": {
			func(f *check.Facts) { f.UpstreamUnreadable = true },
			map[string]check.Outcome{upstream: check.Warning},
		},
		"no ConfigMap": {func(f *check.Facts) { f.Weakening = nil }, map[string]check.Outcome{values: check.Warning}},
		"authors disabled": {
			func(f *check.Facts) {
				f.Weakening["broker-controller.authors.enabled"], f.Policies["akri-authors"] = "bad", nil
			},
			map[string]check.Outcome{authors: check.Warning, values: check.Warning},
		},
		"allowed namespaces disabled": {
			func(f *check.Facts) {
				f.Weakening["broker-controller.allowedNamespaces.enabled"], f.Policies["akri-allowed-namespaces"] = "bad", nil
			},
			map[string]check.Outcome{allowed: check.Warning, values: check.Warning},
		},
		"broker-controller disabled": {
			func(f *check.Facts) { f.Weakening["broker-controller.enabled"], f.Policies = "bad", nil },
			map[string]check.Outcome{authors: check.Warning, allowed: check.Warning, values: check.Warning},
		},
		"unreadable": {
			func(f *check.Facts) {
				f.Weakening, f.Policies, f.Bindings, f.Unreadable = nil, nil, nil, []string{"configmaps", "validatingadmissionpolicies"}
			},
			map[string]check.Outcome{authors: check.Warning, allowed: check.Warning, values: check.Warning},
		},
	} {
		t.Run(name, func(t *testing.T) {
			facts := secure()
			c.change(&facts)
			results := check.Of(healthy(t), facts)
			require.Equal(t, c.want, outcomes(results))
			for _, line := range facts.Weakening {
				require.Contains(t, results, check.Result{Name: values, Outcome: check.Warning, Message: line})
			}
		})
	}
}

// TestPolicies removes and changes each policy and binding in turn. Only the check that needs it
// fails. Those of ResourceClaims are needed with Dynamic Resource Allocation only.
func TestPolicies(t *testing.T) {
	type binding = admissionregistrationv1.ValidatingAdmissionPolicyBinding
	changes := map[string]func(check.Facts, string){
		"no policy":                 func(f check.Facts, name string) { delete(f.Policies, name) },
		"no binding":                func(f check.Facts, name string) { delete(f.Bindings, name) },
		"binding of another policy": func(f check.Facts, name string) { f.Bindings[name].Spec.PolicyName = "other" },
		"binding without actions":   func(f check.Facts, name string) { f.Bindings[name].Spec.ValidationActions = nil },
		"binding that only warns": func(f check.Facts, name string) {
			f.Bindings[name].Spec.ValidationActions[0] = admissionregistrationv1.Warn
		},
		"binding of some of the objects": func(f check.Facts, name string) {
			f.Bindings[name].Spec.MatchResources = &admissionregistrationv1.MatchResources{}
		},
		"other binding": func(f check.Facts, name string) { f.Bindings[name], f.Bindings["other"] = nil, &binding{} },
	}
	needed := map[string]string{"akri-authors": authors, "akri-allowed-namespaces": allowed, "akri-allowed-namespaces-of-claims": allowed}
	require.Len(t, needed, len(check.PolicyNames()))
	for change, apply := range changes {
		for policy, result := range needed {
			for _, dra := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s %s %t", change, policy, dra), func(t *testing.T) {
					s, facts := healthy(t), secure()
					if dra {
						s = apart(fixture.Load(t, fixtures+"healthy.yaml", fixtures+"dra.yaml"))
						s.Deployments = append(s.Deployments, deployment("dra-controller"))
					}
					apply(facts, policy)
					want := map[string]check.Outcome{}
					if dra || policy != "akri-allowed-namespaces-of-claims" {
						want[result] = check.Failed
						require.Contains(t, resultOf(t, check.Of(s, facts), result).Message, policy+" ")
					}
					require.Equal(t, want, outcomes(check.Of(s, facts)))
				})
			}
		}
	}
}

func deployment(component string) appsv1.Deployment {
	return appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "akri-system", Name: "akri-" + component,
			Labels: map[string]string{explain.PartOfLabel: explain.PartOf, explain.ComponentLabel: component},
		},
		Status: appsv1.DeploymentStatus{ReadyReplicas: 1},
	}
}

// TestPolicyHasEachConfiguration checks that a policy that broker-controller has not written, or
// not for each Configuration, does not pass.
func TestPolicyHasEachConfiguration(t *testing.T) {
	restrict := func(name string, allowed ...string) akriv0.Configuration {
		return akriv0.Configuration{
			ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: name},
			Spec:       akriv0.ConfigurationSpec{AllowedNamespaces: allowed},
			Status:     akriv0.ConfigurationStatus{Conditions: []metav1.Condition{{Type: akriv0.ConditionReady, Status: metav1.ConditionTrue}}},
		}
	}
	taken := restrict("taken", "a")
	taken.Status.Conditions = append(taken.Status.Conditions, metav1.Condition{
		Type: akriv0.ConditionDevicesAccepted, Status: metav1.ConditionFalse, Reason: akriv0.ReasonNameTaken,
	})
	for name, c := range map[string]struct {
		configurations []akriv0.Configuration
		written        []string // variables
		missing        string
	}{
		"nothing is restricted": {[]akriv0.Configuration{restrict("open")}, nil, ""},
		"name is taken":         {[]akriv0.Configuration{taken}, nil, ""},
		"written":               {[]akriv0.Configuration{restrict("camera", "a"), restrict("a.b", "a")}, []string{`{"x-": "a"}`, `{"a-b-": "a prod", "camera-": "a prod"}`}, ""},
		"not written":           {[]akriv0.Configuration{restrict("camera", "a")}, nil, "prod/camera"},
		"written for others":    {[]akriv0.Configuration{restrict("camera", "a"), restrict("cam", "a")}, []string{`{"camera-": "a prod"}`}, "prod/cam"},
	} {
		t.Run(name, func(t *testing.T) {
			s, facts := healthy(t), secure()
			s.Deployments = append(s.Deployments, deployment("dra-controller"))
			s.Configurations = c.configurations
			for _, policy := range []string{"akri-allowed-namespaces", "akri-allowed-namespaces-of-claims"} {
				if len(c.written) > 0 && c.missing == "" {
					require.Contains(t, resultOf(t, check.Of(s, facts), allowed).Message, policy+": ", "it is not written yet")
				}
				for _, expression := range c.written {
					spec := &facts.Policies[policy].Spec
					spec.Variables = append(spec.Variables, admissionregistrationv1.Variable{Expression: expression})
					spec.Validations = []admissionregistrationv1.Validation{{Expression: "false"}}
				}
			}
			result := resultOf(t, check.Of(s, facts), allowed)
			if c.missing == "" {
				require.Equal(t, check.Passed, result.Outcome, result.Message)
				return
			}
			require.Equal(t, check.Failed, result.Outcome)
			require.Contains(t, result.Message, " of "+c.missing+" into the ValidatingAdmissionPolicy akri-allowed-namespaces: ")
		})
	}
}

// TestPlacement checks what is reported about the nodes of the cluster services.
func TestPlacement(t *testing.T) {
	node := func(name string, change ...func(*corev1.Node)) corev1.Node {
		node := corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
		}
		for _, apply := range change {
			apply(&node)
		}
		return node
	}
	move := func(s *explain.Snapshot, node string) {
		for i := range s.Pods {
			if component := s.Pods[i].Labels[explain.ComponentLabel]; component == "instance-writer" {
				s.Pods[i].Spec.NodeName = node
			}
		}
	}
	avoidNodeServices := func(s *explain.Snapshot) {
		for i := range s.Pods {
			s.Pods[i].Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{LabelSelector: &metav1.LabelSelector{
					MatchLabels:      map[string]string{explain.PartOfLabel: explain.PartOf},
					MatchExpressions: []metav1.LabelSelectorRequirement{{Key: explain.ComponentLabel, Operator: metav1.LabelSelectorOpIn, Values: []string{"discovery-operator", "agent"}}},
				}}},
			}}
		}
	}
	const noOther = ", and there is no other node for them"
	for name, c := range map[string]struct {
		change  func(*explain.Snapshot)
		outcome check.Outcome
		message string
		remedy  string
	}{
		"apart": {func(*explain.Snapshot) {}, check.Passed, "no cluster service runs on a node with node services", ""},
		"on a node with node services": {
			func(s *explain.Snapshot) { move(s, "node-a") }, check.Warning, "instance-writer run on node-a with node services: who controls", "separateClusterServices=true",
		},
		"no other node": {func(s *explain.Snapshot) { move(s, "node-a") }, check.Warning, noOther, "separateClusterServices=true"},
		"another node": {
			func(s *explain.Snapshot) { move(s, "node-a"); s.Nodes = append(s.Nodes, node("node-c")) },
			check.Warning, "; without node services: node-c", "kubectl rollout restart --namespace akri-system deployment akri-instance-writer",
		},
		"another node is not ready": {
			func(s *explain.Snapshot) {
				move(s, "node-a")
				s.Nodes = append(s.Nodes, node("node-c", func(n *corev1.Node) { n.Status.Conditions = nil }))
			},
			check.Warning, noOther, "",
		},
		"another node is cordoned": {
			func(s *explain.Snapshot) {
				move(s, "node-a")
				s.Nodes = append(s.Nodes, node("node-c", func(n *corev1.Node) { n.Spec.Unschedulable = true }))
			},
			check.Warning, noOther, "",
		},
		"another node has a taint": {
			func(s *explain.Snapshot) {
				move(s, "node-a")
				s.Nodes = append(s.Nodes, node("node-c", func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}} }))
			},
			check.Warning, noOther, "",
		},
		"another node has other labels": {
			func(s *explain.Snapshot) {
				move(s, "node-a")
				s.Nodes = append(s.Nodes, node("node-c"))
				for i := range s.Deployments {
					s.Deployments[i].Spec.Template.Spec.NodeSelector = map[string]string{"a": "b"}
				}
			},
			check.Warning, noOther, "",
		},
		"the agent counts": {
			func(s *explain.Snapshot) {
				agent := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "agent", Labels: map[string]string{explain.PartOfLabel: explain.PartOf, explain.ComponentLabel: "agent"}}}
				agent.Spec.NodeName = "node-c"
				s.Pods = append(s.Pods, agent)
			},
			check.Warning, "broker-controller, instance-writer run on node-c with node services", "",
		},
		"an ended Pod does not count": {
			func(s *explain.Snapshot) {
				move(s, "node-a")
				for i := range s.Pods {
					s.Pods[i].Status.Phase = corev1.PodFailed
				}
			},
			check.Passed, "", "",
		},
		"required and impossible": {
			func(s *explain.Snapshot) { avoidNodeServices(s); move(s, "") }, check.Failed,
			"instance-writer may not run on a node with node services, and no other node accepts it", "separateClusterServices=false",
		},
		"required and possible": {
			func(s *explain.Snapshot) {
				avoidNodeServices(s)
				move(s, "")
				s.Nodes = append(s.Nodes, node("node-c"))
			}, check.Passed, "", "",
		},
		"no node for another reason": {func(s *explain.Snapshot) { move(s, "") }, check.Passed, "", ""},
		"Pods of one namespace":      {func(s *explain.Snapshot) { s.OneNamespace = true }, check.Warning, "not checked", ""},
		"no right to list Nodes":     {func(s *explain.Snapshot) { s.Unreadable = []string{"nodes"} }, check.Warning, "not checked", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := healthy(t)
			c.change(s)
			result := resultOf(t, check.Of(s, secure()), "placement")
			require.Equal(t, c.outcome, result.Outcome, result.Message)
			require.Contains(t, result.Message, c.message)
			require.Contains(t, commands(result), c.remedy)
			requireInterrupts(t, result)
		})
	}
}

func commands(result check.Result) string {
	var commands []string
	for _, remedy := range result.Remedies {
		commands = append(commands, remedy.Command)
	}
	return strings.Join(commands, "\n")
}

// TestNodeLabels checks that it matters whether a kubelet can set labels only if a Configuration
// selects nodes by them.
func TestNodeLabels(t *testing.T) {
	const name = "node labels"
	for _, c := range []struct {
		nodes       *akriv0.AllowedNodes
		restriction check.NodeRestriction
		want        check.Outcome
		message     string
	}{
		{nil, check.NodeRestriction{Enforced: true}, check.Passed, "lets no kubelet set"},
		{nil, check.NodeRestriction{}, check.Passed, "would not protect"},
		{nil, check.NodeRestriction{Unknown: "why"}, check.Passed, "is not known: why"},
		{&akriv0.AllowedNodes{Names: []string{"a"}}, check.NodeRestriction{}, check.Passed, "would not protect"},
		{labelled(), check.NodeRestriction{Enforced: true}, check.Passed, "lets no kubelet set"},
		{labelled(), check.NodeRestriction{}, check.Failed, "Secrets of default/camera"},
		{labelled(), check.NodeRestriction{Unknown: "why"}, check.Warning, "not checked whether a kubelet can set labels node-restriction.kubernetes.io/...: why"},
	} {
		s, facts := healthy(t), secure()
		s.Configurations[0].Spec.Nodes, facts.NodeRestriction = c.nodes, c.restriction
		result := resultOf(t, check.Of(s, facts), name)
		require.Equal(t, c.want, result.Outcome, result.Message)
		require.Contains(t, result.Message, c.message)
		require.Equal(t, c.want == check.Failed, strings.Contains(commands(result), "kubectl edit configuration.akri.sh camera --namespace default"))
	}
}

func labelled() *akriv0.AllowedNodes {
	return &akriv0.AllowedNodes{MatchLabels: map[string]string{akriv0.NodeRestrictionPrefix + "site": "north"}}
}
