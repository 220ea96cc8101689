package explain

import (
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
		if problems, _ := t.problems(reason); found.Reason == reason || len(problems) > 0 {
			report(problemCause(t, found, reason, remedies))
		}
	}
}

func correct(t target) []Remedy { return []Remedy{edit(t.configuration)} }

// problems returns the problems with the reason, and the nodes that report them. It leaves out what
// a node reported last if the node services do not run there any more: the handlers have stopped
// with them.
func (t target) problems(reason string) (problems []akriv0.Problem, nodes []string) {
	for _, node := range t.configuration.Status.Nodes {
		for _, problem := range node.Problems {
			if problem.Reason != reason || t.withoutAkri(node.Name) {
				continue
			}
			problems = append(problems, problem)
			if !slices.Contains(nodes, node.Name) { // a handler can have several endpoints on a node
				nodes = append(nodes, node.Name)
			}
		}
	}
	return problems, nodes
}

// problemCause returns a cause with the facts of the problems that nodes report for the reason. Its
// message is that of the condition, unless the condition is about something else. Both state the
// evidence.
func problemCause(t target, stated metav1.Condition, reason string, remedies func(t target) []Remedy) Cause {
	cause := Cause{Message: stated.Message, Remedies: remedies(t)}
	problems, nodes := t.problems(reason)
	if stated.Reason != reason && len(problems) > 0 {
		cause.Message = NodeList(nodes) + ": " + problems[0].Message
	}
	for _, problem := range problems {
		if cause.Subject == nil {
			cause.Subject = problem.Subject
		}
		if wait := problem.Wait; wait != nil && (cause.Wait == nil || wait.Until.Before(&cause.Wait.Until)) {
			cause.Wait, cause.Since = wait, &wait.Since
		}
	}
	return cause
}
