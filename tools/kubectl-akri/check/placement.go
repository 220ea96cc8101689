package check

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
)

// nodeServices are the components that show that a node has node services. The chart keeps cluster
// services away from the same ones.
var nodeServices = []string{"discovery-operator", "agent"}

const keepOff = "Keep the node services off a node, with a taint or with global.nodePlane.nodeSelector."

// placement checks that the cluster services, which are Deployments, do not share nodes with node
// services.
func placement(s *explain.Snapshot, facts Facts) Result {
	const name = "placement"
	if s.OneNamespace || slices.ContainsFunc([]string{"daemonsets", "deployments", "nodes", "pods"}, func(resource string) bool {
		return slices.Contains(s.Unreadable, resource)
	}) {
		return Result{Name: name, Outcome: Warning, Message: "not checked: you may not list Nodes, or workloads and Pods of all namespaces"}
	}

	separate := func(text, value string) explain.Remedy {
		remedy := explain.Remedy{Text: text, Command: "helm upgrade akri charts/akri --namespace " + facts.Namespace +
			" --reset-then-reuse-values --set global.separateClusterServices=" + value}
		return interrupting(remedy, explain.Where(s.Deployments, func(*appsv1.Deployment) bool { return true }))
	}
	found := placesOf(s)
	result := Result{Name: name, Outcome: Warning}
	switch {
	case len(found.waiting) > 0 && len(found.free) == 0:
		result.Outcome = Failed
		result.Message = componentsOf(found.waiting) + " may not run on a node with node services, and no other node accepts it"
		result.Remedies = []explain.Remedy{{Text: keepOff}, separate("Or allow nodes with node services.", "false")}
	case len(found.sharing) == 0:
		return passed(name, "no cluster service runs on a node with node services")
	case len(found.free) == 0:
		result.Message = found.shared() + ", and there is no other node for them"
		result.Remedies = []explain.Remedy{
			{Text: "On sites with one or two nodes, protect these nodes as those of the API server. Otherwise, let the cluster services have a node. " + keepOff},
			separate("Then require it.", "true"),
		}
	default:
		result.Message = found.shared() + "; without node services: " + nodeList(found.free)
		result.Remedies = []explain.Remedy{restart("Start them again: they prefer nodes without node services.", found.sharing), separate("Or require such nodes.", "true")}
	}
	return result
}

// places are where Pods of the cluster services are.
type places struct {
	// sharing have Pods on nodes with node services, which are in nodes.
	sharing []*appsv1.Deployment
	nodes   map[string]bool
	// waiting have Pods without a node, which may not run on nodes with node services.
	waiting []*appsv1.Deployment
	// free are nodes without node services for sharing and waiting.
	free map[string]bool
}

func (p places) shared() string {
	return componentsOf(p.sharing) + " run on " + nodeList(p.nodes) + " with node services: who controls such a node can act as them (docs/security.md#placement)"
}

func placesOf(s *explain.Snapshot) places {
	with := map[string]bool{}
	for i := range s.Pods {
		if pod := &s.Pods[i]; explain.IsAkri(pod) && slices.Contains(nodeServices, pod.Labels[explain.ComponentLabel]) {
			with[pod.Spec.NodeName] = true
		}
	}

	found := places{nodes: map[string]bool{}, free: map[string]bool{}}
	for _, d := range explain.Where(s.Deployments, func(*appsv1.Deployment) bool { return true }) {
		shares, waits := false, false
		for _, pod := range podsOf(s, d) {
			if with[pod.Spec.NodeName] {
				found.nodes[pod.Spec.NodeName], shares = true, true
			}
			waits = waits || pod.Spec.NodeName == "" && avoidsNodeServices(pod)
		}
		if shares {
			found.sharing = append(found.sharing, d)
		}
		if waits {
			found.waiting = append(found.waiting, d)
		}
		for i := range s.Nodes {
			if node := &s.Nodes[i]; (shares || waits) && !with[node.Name] && accepts(node, &d.Spec.Template.Spec) {
				found.free[node.Name] = true
			}
		}
	}
	return found
}

// podsOf returns the Pods of the Deployment that have not ended.
func podsOf(s *explain.Snapshot, d *appsv1.Deployment) []*corev1.Pod {
	return explain.Where(s.Pods, func(pod *corev1.Pod) bool {
		return explain.IsAkri(pod) && pod.Labels[explain.ComponentLabel] == d.Labels[explain.ComponentLabel] &&
			pod.Status.Phase != corev1.PodFailed && pod.Status.Phase != corev1.PodSucceeded
	})
}

// avoidsNodeServices reports whether the Pod may not run on a node with node services.
func avoidsNodeServices(pod *corev1.Pod) bool {
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.PodAntiAffinity == nil {
		return false
	}
	required := pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	return slices.ContainsFunc(required, func(term corev1.PodAffinityTerm) bool {
		selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
		return err == nil && slices.ContainsFunc(nodeServices, func(component string) bool {
			return selector.Matches(labels.Set{
				explain.PartOfLabel: explain.PartOf, explain.ComponentLabel: component, releaseLabel: pod.Labels[releaseLabel],
			})
		})
	})
}

const releaseLabel = "app.kubernetes.io/instance"

// accepts reports whether the node accepts the Pod, as far as its state, nodeSelector and taints
// decide.
func accepts(node *corev1.Node, pod *corev1.PodSpec) bool {
	return explain.NodeReady(node) && !node.Spec.Unschedulable &&
		labels.SelectorFromSet(pod.NodeSelector).Matches(labels.Set(node.Labels)) &&
		!slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return !explain.Tolerated(pod.Tolerations, taint) })
}

func componentsOf(deployments []*appsv1.Deployment) string {
	var names []string
	for _, d := range deployments {
		names = append(names, d.Labels[explain.ComponentLabel])
	}
	return strings.Join(names, ", ")
}

func nodeList(nodes map[string]bool) string { return explain.NodeList(slices.Sorted(maps.Keys(nodes))) }

func restart(text string, deployments []*appsv1.Deployment) explain.Remedy {
	remedy := explain.Remedy{Text: text, Command: "kubectl rollout restart --namespace " + deployments[0].Namespace + " deployment"}
	for _, d := range deployments {
		remedy.Command += " " + d.Name
	}
	return interrupting(remedy, deployments)
}

// interrupting adds the Deployments whose Pods the command restarts.
func interrupting(remedy explain.Remedy, deployments []*appsv1.Deployment) explain.Remedy {
	for _, d := range deployments {
		remedy.Interrupts = append(remedy.Interrupts, akriv0.Subject{Kind: "Deployment", Namespace: d.Namespace, Name: d.Name})
	}
	return remedy
}
