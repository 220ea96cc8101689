package explain

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// NodeWithoutAkri means that the node services do not run on a node, for example because of a
// taint.
const NodeWithoutAkri CauseID = "NodeWithoutAkri"

func init() { register(rule{NodeWithoutAkri, LinkActive, 1, nodeWithoutAkri}) }

// nodeWithoutAkri leaves out the nodes on which Akri need not run, such as those of the control
// plane.
func nodeWithoutAkri(t target, report func(Cause)) {
	for _, node := range t.NodesWithoutAkri() {
		if node.needed(t.Snapshot) {
			report(node.Cause(t.Snapshot))
		}
	}
}

// fits reports whether a DaemonSet has a Pod on the node.
func fits(spec corev1.PodSpec, node *corev1.Node) bool {
	for key, value := range spec.NodeSelector {
		if node.Labels[key] != value {
			return false
		}
	}
	return !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return !Tolerated(spec.Tolerations, taint) })
}

func (in *Installation) tolerate(node NodeWithout) []Remedy {
	var tolerations []string
	var taints []any
	for _, taint := range node.Taints {
		tolerations = append(tolerations, `{"key":"%s","operator":"Equal","value":"%s","effect":"%s"}`)
		taints = append(taints, taint.Key, taint.Value, taint.Effect)
	}
	names := []any{node.Node}
	for _, name := range node.TaintNames() {
		names = append(names, name)
	}
	return []Remedy{
		remedy("Remove the taint, if the node needs none.", "kubectl taint node %s"+strings.Repeat(" %s-", len(names)-1), names...),
		in.restarting(in.upgrade("Or tolerate the taint.", "--set-json 'global.nodePlane.tolerations=["+strings.Join(tolerations, ",")+"]'", taints...)),
	}
}

// NodeWithout is a node on which the node services do not run.
type NodeWithout struct {
	Node string
	// Taints that the DaemonSet does not tolerate.
	Taints []corev1.Taint
}

// TaintNames returns the taints as kubectl writes them.
func (n NodeWithout) TaintNames() []string {
	var names []string
	for _, taint := range n.Taints {
		names = append(names, taint.ToString())
	}
	return names
}

// needed reports whether the devices of the node are known, or whether its DaemonSet should run
// there.
func (n NodeWithout) needed(s *Snapshot) bool {
	node := s.nodeNamed(n.Node)
	return n.hasDevices(s) || node != nil && slices.ContainsFunc(ofComponents(s.DaemonSets, discoveryOperator, agent), func(d *appsv1.DaemonSet) bool {
		return fits(d.Spec.Template.Spec, node)
	})
}

func (n NodeWithout) hasDevices(s *Snapshot) bool {
	return slices.ContainsFunc(s.Instances, func(i akriv0.Instance) bool { return slices.Contains(i.Spec.Nodes, n.Node) })
}

// Cause returns why the node services do not run on the node.
func (n NodeWithout) Cause(s *Snapshot) Cause {
	cause := Cause{ID: NodeWithoutAkri, Subject: subject("Node", "", n.Node), Message: "Akri does not run on " + n.Node}
	if len(n.Taints) == 0 {
		release, namespace := s.release()
		cause.Remedies = []Remedy{
			remedy("Compare the labels of the node with global.nodePlane.nodeSelector.", "kubectl get node %s --show-labels", n.Node),
			remedy("Read the values.", "helm get values %s --namespace %s --all", release, namespace),
		}
	} else {
		cause.Message += ", because it does not tolerate " + strings.Join(n.TaintNames(), ", ")
		cause.Remedies = s.tolerate(n)
	}

	if n.hasDevices(s) { // they stay until then
		cause.Remedies = append(cause.Remedies,
			remedy("Or remove the devices of the node, if Akri should not run there.", "kubectl akri forget %s", n.Node).
				interrupting("Node", "", n.Node))
	}
	return cause
}

// NodesWithoutAkri returns the nodes without a Pod of discovery-operator or the agent.
func (s *Snapshot) NodesWithoutAkri() []NodeWithout {
	daemonSets := ofComponents(s.DaemonSets, discoveryOperator, agent)
	var nodes []NodeWithout
	for i := range s.Nodes {
		node := &s.Nodes[i]
		if !s.withoutAkri(node.Name) {
			continue
		}
		without := NodeWithout{Node: node.Name}
		for _, taint := range node.Spec.Taints {
			if !Tolerated(daemonSets[0].Spec.Template.Spec.Tolerations, taint) {
				without.Taints = append(without.Taints, taint)
			}
		}
		nodes = append(nodes, without)
	}
	return nodes
}

// withoutAkri reports whether the node services are known not to run on the node.
func (s *Snapshot) withoutAkri(node string) bool {
	if s.OneNamespace || !s.readable("pods") || !s.readable("nodes") || len(ofComponents(s.DaemonSets, discoveryOperator, agent)) == 0 {
		return false
	}
	return s.nodeNamed(node) != nil && len(s.podsOn(node, discoveryOperator, agent)) == 0
}

// Tolerated reports whether a Pod of a DaemonSet with the tolerations is scheduled in spite of the
// taint. Kubernetes adds tolerations for the states of the node itself.
func Tolerated(tolerations []corev1.Toleration, taint corev1.Taint) bool {
	if taint.Effect == corev1.TaintEffectPreferNoSchedule || strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
		return true
	}
	return slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
		return t.ToleratesTaint(klog.Background(), &taint, true)
	})
}
