package explain

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// whenFalse is for causes that a condition of the Configuration states. It finds the condition that
// is False, for the reason, or for any if reason is empty.
func whenFalse(kind, reason string, remedies func(t target) []Remedy) func(target) []Cause {
	return func(t target) []Cause {
		found := condition(t.configuration, kind)
		if found.Status != metav1.ConditionFalse || reason != "" && found.Reason != reason {
			return nil
		}
		cause := problemCause(problemsOf(t.configuration, found.Reason), found.Message)
		cause.Remedies = remedies(t)
		return []Cause{cause}
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

// problemCause returns a cause with the facts of the problems, which nodes report for one reason.
// The message states their evidence.
func problemCause(problems []akriv0.Problem, message string) Cause {
	cause := Cause{Message: message}
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
