package explain

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// whenFalse is for causes that a condition of the Configuration states. It finds the condition that
// is False, for the reason, or for any if reason is empty.
func whenFalse(kind, reason string, remedies func(t target) []Remedy) finder {
	return func(t target, report func(Cause)) {
		found := condition(t.configuration, kind)
		if found.Status == metav1.ConditionFalse && (reason == "" || found.Reason == reason) {
			report(problemCause(t, found, found.Reason, remedies))
		}
	}
}

// whenReported is for causes that nodes report, or that a condition of the Configuration states.
// The condition can be True because of other nodes.
func whenReported(kind, reason string, remedies func(t target) []Remedy) finder {
	return func(t target, report func(Cause)) {
		found := condition(t.configuration, kind)
		if found.Reason == reason || len(problemsOf(t.configuration, reason)) > 0 {
			report(problemCause(t, found, reason, remedies))
		}
	}
}

func correct(t target) []Remedy { return []Remedy{edit(t.configuration)} }

// problemsOf returns the problems of all nodes with the reason.
func problemsOf(c *akriv0.Configuration, reason string) []akriv0.Problem {
	var found []akriv0.Problem
	for _, node := range c.Status.Nodes {
		for _, problem := range node.Problems {
			if problem.Reason == reason {
				found = append(found, problem)
			}
		}
	}
	return found
}

// reportedBy returns the nodes that report a problem with the reason, and the message of the first.
func reportedBy(c *akriv0.Configuration, reason string) (nodes []string, message string) {
	for _, node := range c.Status.Nodes {
		for _, problem := range node.Problems {
			if problem.Reason == reason {
				message = cmp.Or(message, problem.Message)
				if !slices.Contains(nodes, node.Name) { // a handler can have several endpoints on a node
					nodes = append(nodes, node.Name)
				}
			}
		}
	}
	return nodes, message
}

// problemCause returns a cause with the facts of the problems that nodes report for the reason. Its
// message is that of the condition, unless the condition is about something else. Both state the
// evidence.
func problemCause(t target, stated metav1.Condition, reason string, remedies func(t target) []Remedy) Cause {
	cause := Cause{Message: stated.Message, Remedies: remedies(t)}
	if nodes, message := reportedBy(t.configuration, reason); stated.Reason != reason && len(nodes) > 0 {
		cause.Message = NodeList(nodes) + ": " + message
	}
	for _, problem := range problemsOf(t.configuration, reason) {
		if cause.Subject == nil {
			cause.Subject = problem.Subject
		}
		if wait := problem.Wait; wait != nil && (cause.Wait == nil || wait.Until.Before(&cause.Wait.Until)) {
			cause.Wait, cause.Since = wait, &wait.Since
		}
	}
	return cause
}
