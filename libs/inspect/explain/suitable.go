package explain

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// unsuitable returns why the scheduler does not place a Pod with the spec on a node whatever the
// node has left: taints, and labels that the spec requires.
func unsuitable(spec *corev1.PodSpec, node *corev1.Node) []string {
	var reasons []string
	for _, taint := range node.Spec.Taints {
		if taint.Effect != corev1.TaintEffectPreferNoSchedule && !isNodeState(taint) && !tolerates(spec.Tolerations, taint) {
			reasons = append(reasons, fmt.Sprintf("it has the taint %s, which needs the toleration %s", taint.ToString(), tolerationFor(taint)))
		}
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{NodeSelector: spec.NodeSelector, Affinity: spec.Affinity}}
	if matches, err := nodeaffinity.GetRequiredNodeAffinity(pod).Match(node); err == nil && !matches {
		reasons = append(reasons, "it does not match the nodeSelector or the node affinity")
	}
	return reasons
}

// isNodeState reports whether the taint repeats a state that other causes name.
func isNodeState(taint corev1.Taint) bool {
	switch taint.Key {
	case corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable, corev1.TaintNodeUnschedulable:
		return true
	}
	return false
}

func tolerates(tolerations []corev1.Toleration, taint corev1.Taint) bool {
	for i := range tolerations {
		if tolerations[i].ToleratesTaint(klog.Background(), &taint, true) {
			return true
		}
	}
	return false
}

// tolerationFor returns the toleration of exactly this taint, in the form of a manifest.
func tolerationFor(taint corev1.Taint) string {
	if taint.Value == "" {
		return fmt.Sprintf("{key: %s, operator: Exists, effect: %s}", taint.Key, taint.Effect)
	}
	return fmt.Sprintf("{key: %s, operator: Equal, value: %s, effect: %s}", taint.Key, taint.Value, taint.Effect)
}

// maxNodeReasons is the number of nodes that nodeReasons lists.
const maxNodeReasons = 10

// nodeReasons returns for each node why the Pod of the target does not run there, as far as the
// objects show it. The scheduler states only how many nodes have a reason.
func (t target) nodeReasons() []string {
	var lines []string
	for i := range t.Nodes {
		if len(lines) == maxNodeReasons {
			return append(lines, fmt.Sprintf("and %s", Plural(len(t.Nodes)-maxNodeReasons, "more node")))
		}
		node := &t.Nodes[i]
		reasons := t.reasonsOf(node)
		if len(reasons) == 0 {
			reasons = []string{t.fitting() + " fit"}
		}
		lines = append(lines, node.Name+": "+strings.Join(reasons, "; "))
	}
	return lines
}

func (t target) reasonsOf(node *corev1.Node) []string {
	var reasons []string
	switch {
	case node.Spec.Unschedulable:
		reasons = append(reasons, "it is cordoned")
	case !NodeReady(node):
		reasons = append(reasons, "it is not ready")
	}
	reasons = append(reasons, unsuitable(&t.pod.Spec, node)...)
	for _, name := range requestedDevices(t.pod) {
		if reason := t.shortageOf(name, node.Name); reason != "" {
			reasons = append(reasons, reason)
		}
	}
	reasons = append(reasons, t.insufficientOn(node)...)
	if len(reasons) == 0 && t.Requested == nil {
		reasons = t.perhapsInsufficientOn(node)
	}
	return reasons
}

// fitting lists what reasonsOf has compared.
func (t target) fitting() string {
	compared := []string{"taints", "labels"}
	if len(requestedDevices(t.pod)) > 0 {
		compared = append(compared, "devices")
	}
	if t.Requested != nil {
		compared = append(compared, "resources")
	}
	last := len(compared) - 1
	return "its " + strings.Join(compared[:last], ", ") + " and " + compared[last]
}
