package check

import (
	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
)

// NodeRestriction is what is known about the labels that a kubelet can give its Node.
type NodeRestriction struct {
	// Enforced is whether the API server refuses labels that begin with
	// akriv0.NodeRestrictionPrefix.
	Enforced bool
	// Unknown is why it is not known, or nothing.
	Unknown string
}

// nodeLabels checks that a kubelet cannot give its Node the labels that Configurations select nodes
// by. It only informs while no Configuration does.
func nodeLabels(s *explain.Snapshot, facts Facts) Result {
	const name = "node labels"
	const labels = akriv0.NodeRestrictionPrefix + "..."
	var selecting []string
	var edits []explain.Remedy
	for i := range s.Configurations {
		if c := &s.Configurations[i]; c.Spec.Nodes != nil && len(c.Spec.Nodes.MatchLabels) > 0 {
			selecting = append(selecting, c.Namespace+"/"+c.Name)
			edits = append(edits, explain.Remedy{
				Text: "Or select the nodes by spec.nodes.names.", Command: "kubectl edit configuration.akri.sh " + c.Name + " --namespace " + c.Namespace,
			})
		}
	}

	switch {
	case facts.NodeRestriction.Enforced:
		return passed(name, "the API server lets no kubelet set "+labels)
	case len(selecting) == 0 && facts.NodeRestriction.Unknown != "":
		return passed(name, "no Configuration has spec.nodes.matchLabels; whether a kubelet can set them is not known: "+facts.NodeRestriction.Unknown)
	case len(selecting) == 0:
		return passed(name, "no Configuration has spec.nodes.matchLabels, which would not protect: a kubelet can set "+labels+" on its Node")
	case facts.NodeRestriction.Unknown != "":
		return Result{Name: name, Outcome: Warning, Message: "not checked whether a kubelet can set labels " + labels + ": " + facts.NodeRestriction.Unknown}
	}
	return Result{
		Name: name, Outcome: Failed,
		Message: "a kubelet can set labels " + labels + " on its Node, so that each node can get the devices, details and Secrets of " + explain.NodeList(selecting),
		Remedies: append([]explain.Remedy{{
			Text: "Enable the admission plug-in NodeRestriction and the authorizer Node of the API server (--enable-admission-plugins, --authorization-mode).",
		}}, edits...),
	}
}
