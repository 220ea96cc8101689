// Package check finds out whether a cluster is ready for Akri, and whether an installation works.
// It is pure, like package explain.
package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
)

// Outcome of a check.
type Outcome string

// Outcomes. Only Failed makes the command fail.
const (
	Passed  Outcome = "Passed"
	Warning Outcome = "Warning"
	Failed  Outcome = "Failed"
)

// Result of one check.
type Result struct {
	Name     string           `json:"name"`
	Outcome  Outcome          `json:"outcome"`
	Message  string           `json:"message"`
	Remedies []explain.Remedy `json:"remedies,omitempty"`
}

// Facts are what checks need in addition to a Snapshot.
type Facts struct {
	// Version of the API server, such as v1.30.2.
	Version string
	// Namespace of the installation, or to install into.
	Namespace string
	// Enforced is the Pod Security level that the namespace enforces, or nothing.
	Enforced string
	// MissingRights are rights that an installation needs and the user does not have.
	MissingRights []string
	// Weakening has what each value of the release that weakens security means, by the name of the
	// value. It is the data of the ConfigMap that WeakeningMap names, or nil if there is none.
	Weakening map[string]string
	// Upstream has the values of upstream Akri's chart that are set and do not have their effect,
	// of all releases that the user may read. UpstreamUnreadable is true if that is none.
	Upstream           []UpstreamValue
	UpstreamUnreadable bool
	// Policies and Bindings are those of PolicyNames that exist, by name.
	Policies map[string]*admissionregistrationv1.ValidatingAdmissionPolicy
	Bindings map[string]*admissionregistrationv1.ValidatingAdmissionPolicyBinding
	// Unreadable names the resources of the ConfigMap Weakening, and of Policies and Bindings, that
	// the user may not get.
	Unreadable []string
	CA         CA
	// NodeRestriction is what the API server lets a kubelet do.
	NodeRestriction NodeRestriction
	// Resources is the data of the ConfigMap with how Pods get devices. It is nil if there is none,
	// or if the user may not get it.
	Resources map[string]string
	// HasDRA is whether the API server has what Dynamic Resource Allocation needs.
	HasDRA bool
	// Review is nil if the cluster has no webhook of Akri.
	Review *Review
	// Release is the Helm release, or nil if Helm has not installed Akri or the user may not read
	// it.
	Release *Release
}

// WeakeningMap is a ConfigMap of the chart akri.
const WeakeningMap = "akri-weakening"

// UpstreamSelector selects the ConfigMaps of the chart akri with values of upstream Akri's chart
// that do not have their effect. A release has one if such a value is set.
const UpstreamSelector = explain.PartOfLabel + "=" + explain.PartOf + "," + explain.ComponentLabel + "=upstream-values"

// UpstreamValue is a value of upstream Akri's chart that does not have its effect.
type UpstreamValue struct {
	// Release is the namespace and the name of the Helm release.
	Release string
	Name    string
	// Meaning is why the value has no effect, and what to set instead.
	Meaning string
}

// Of checks the installation, or whether one is possible if there is none.
func Of(s *explain.Snapshot, facts Facts) []Result {
	results := []Result{kubernetesVersion(facts.Version)}
	if facts.Release != nil {
		results = append(results, release(*facts.Release, time.Now()))
	}
	if len(s.DaemonSets) == 0 && len(s.Deployments) == 0 && s.Unreadable == nil {
		return append(results, readyNodes(s), podSecurity(facts), rights(facts))
	}
	results = append(results, services(s)...)
	results = append(results, certificates(facts)...)
	results = append(results, webhook(s, facts.Review), authors(facts), allowedNamespaces(s, facts), nodesWithout(s),
		placement(s, facts), nodeLabels(s, facts))
	results = append(results, resources(facts)...)
	results = append(results, weakening(facts)...)
	results = append(results, upstream(facts)...)
	return append(results, subjects(s)...)
}

// HasFailed reports whether a check has failed.
func HasFailed(results []Result) bool {
	return slices.ContainsFunc(results, func(r Result) bool { return r.Outcome == Failed })
}

func passed(name, message string) Result {
	return Result{Name: name, Outcome: Passed, Message: message}
}

// minimum is the kubeVersion of the chart.
const minimum = "1.30.0"

func kubernetesVersion(found string) Result {
	const name = "Kubernetes version"
	parsed, err := version.ParseGeneric(found)
	switch {
	case err != nil:
		return Result{Name: name, Outcome: Warning, Message: fmt.Sprintf("%q is no version", found)}
	case parsed.LessThan(version.MustParseGeneric(minimum)):
		return Result{Name: name, Outcome: Failed, Message: fmt.Sprintf("%s is older than v%s", found, minimum),
			Remedies: []explain.Remedy{{Text: "Upgrade Kubernetes."}}}
	default:
		return passed(name, found)
	}
}

func readyNodes(s *explain.Snapshot) Result {
	const name = "nodes"
	ready := 0
	for i := range s.Nodes {
		if explain.NodeReady(&s.Nodes[i]) && s.Nodes[i].Labels[corev1.LabelOSStable] != "windows" {
			ready++
		}
	}
	if ready == 0 {
		return Result{Name: name, Outcome: Failed, Message: "no Linux node is ready", Remedies: []explain.Remedy{{
			Text: "Find out why.", Command: "kubectl describe nodes",
		}}}
	}
	return passed(name, explain.Plural(ready, "Linux node")+" ready")
}

func podSecurity(facts Facts) Result {
	const name = "Pod Security"
	if facts.Enforced == "" || facts.Enforced == "privileged" {
		return passed(name, "the namespace "+facts.Namespace+" allows Pods that mount directories of the node")
	}
	return Result{
		Name: name, Outcome: Failed,
		Message: fmt.Sprintf("the namespace %s enforces %q, but the services of nodes mount directories of the node", facts.Namespace, facts.Enforced),
		Remedies: []explain.Remedy{
			{Text: "Give the services of nodes a namespace of their own.", Command: "helm install akri charts/akri --namespace " + facts.Namespace +
				" --set global.nodePlane.namespace=NODE-NAMESPACE --wait"},
			{Text: "Or allow such Pods.", Command: "kubectl label namespace " + facts.Namespace + " --overwrite pod-security.kubernetes.io/enforce=privileged"},
		},
	}
}

func rights(facts Facts) Result {
	const name = "rights to install"
	if len(facts.MissingRights) == 0 {
		return passed(name, "you have them")
	}
	return Result{Name: name, Outcome: Failed, Message: "you may not " + strings.Join(facts.MissingRights, ", "), Remedies: []explain.Remedy{{
		Text: "Let a user with the role cluster-admin install Akri.",
	}}}
}

// services returns a result for each cause for which a service does not work, or one for all.
func services(s *explain.Snapshot) []Result {
	const name = "services"
	link := s.ServicesLink()
	switch {
	case link.State == explain.Works:
		return []Result{passed(name, link.Message)}
	case link.State == explain.Skipped:
		return []Result{{Name: name, Outcome: Warning, Message: link.Message}}
	case len(link.Causes) == 0:
		return []Result{{Name: name, Outcome: Failed, Message: link.Message}}
	}
	var results []Result
	for _, cause := range link.Causes {
		results = append(results, Result{Name: name, Outcome: Failed, Message: cause.Message, Remedies: cause.Remedies})
	}
	return results
}

func logsOfBrokerController(text string) explain.Remedy { return logsOf("broker-controller", text) }

func logsOf(component, text string) explain.Remedy {
	return explain.Remedy{
		Text: text, Command: "kubectl logs --all-namespaces --tail=50 --prefix --selector " + explain.ComponentLabel + "=" + component,
	}
}

// weakening returns a result for each value that weakens security, or one for all.
func weakening(facts Facts) []Result {
	const name = "values"
	switch {
	case slices.Contains(facts.Unreadable, "configmaps"):
		return []Result{{Name: name, Outcome: Warning, Message: "not checked: you may not get the ConfigMap " + WeakeningMap}}
	case facts.Weakening == nil:
		return []Result{{Name: name, Outcome: Warning, Message: "not checked: the namespace " + facts.Namespace + " has no ConfigMap " + WeakeningMap}}
	case len(facts.Weakening) == 0:
		return []Result{passed(name, "no value weakens security")}
	}
	var results []Result
	for _, value := range slices.Sorted(maps.Keys(facts.Weakening)) {
		results = append(results, Result{Name: name, Outcome: Warning, Message: facts.Weakening[value]})
	}
	return results
}

// upstream returns a result for each value of upstream Akri's chart that does not have its effect.
func upstream(facts Facts) []Result {
	const name = "values of upstream Akri"
	if facts.UpstreamUnreadable {
		return []Result{{Name: name, Outcome: Warning, Message: "not checked: you may not list ConfigMaps in the namespace " + facts.Namespace}}
	}
	var results []Result
	for _, value := range facts.Upstream {
		message := fmt.Sprintf("%s of the release %s: %s", value.Name, value.Release, value.Meaning)
		results = append(results, Result{Name: name, Outcome: Warning, Message: message})
	}
	return results
}

func nodesWithout(s *explain.Snapshot) Result {
	const name = "nodes"
	result := passed(name, "Akri runs on every node")
	for i, node := range s.NodesWithoutAkri() {
		cause := node.Cause(s)
		if i == 0 {
			result = Result{Name: name, Outcome: Warning}
		} else {
			result.Message += "; "
		}
		result.Message += cause.Message
		result.Remedies = append(result.Remedies, cause.Remedies...)
	}
	return result
}

// checked are the kinds of subjects with a result of their own if they do not work.
var checked = []string{explain.SubjectDevices, explain.SubjectBrokers, akriv0.SubjectHandler, "Node"}

// subjects returns a result for each subject that does not work, or one for all.
func subjects(s *explain.Snapshot) []Result {
	var results []Result
	for _, verdict := range explain.Verdicts(s) {
		if outcome := outcomeOf(verdict.State); outcome != Passed && slices.Contains(checked, verdict.Subject.Kind) {
			results = append(results, resultOf(verdict, outcome))
		}
	}
	if len(results) == 0 {
		return []Result{passed("Configurations", "the devices and brokers of "+explain.Plural(len(s.Configurations), "Configuration")+" work")}
	}
	return results
}

// outcomeOf returns the outcome for a verdict. No device of some Configurations, and nodes that an
// administrator has cordoned, are no faults.
func outcomeOf(state explain.State) Outcome {
	switch state {
	case explain.Broken, explain.Partly:
		return Failed
	case explain.Waiting:
		return Warning
	default:
		return Passed
	}
}

func resultOf(verdict explain.Verdict, outcome Outcome) Result {
	subject := verdict.Subject
	result := Result{
		Name: nameOf(subject), Outcome: outcome,
		Message: verdict.State.Word() + ": " + verdict.Summary(),
	}
	for _, cause := range verdict.Causes {
		result.Remedies = append(result.Remedies, cause.Remedies...)
	}
	return result
}

func nameOf(subject akriv0.Subject) string {
	if subject.Namespace == "" {
		return subject.Kind + " " + subject.Name
	}
	return subject.Kind + " of " + subject.Namespace + "/" + subject.Name
}
