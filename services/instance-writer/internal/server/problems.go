package server

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// parseProblems escapes text: the status of a Configuration is shown on terminals.
func parseProblems(problems []*instancev1.Problem) []akriv0.Problem {
	var parsed []akriv0.Problem
	for _, problem := range problems {
		p := akriv0.Problem{Reason: problem.GetReason(), Message: akriv0.Escape(problem.GetMessage())}
		for _, evidence := range problem.GetEvidence() {
			p.Evidence = append(p.Evidence, akriv0.Escape(evidence))
		}

		if subject := problem.GetSubject(); subject != nil {
			p.Subject = &akriv0.Subject{
				Kind: akriv0.Escape(subject.GetKind()), Namespace: akriv0.Escape(subject.GetNamespace()), Name: akriv0.Escape(subject.GetName()),
			}
		}

		if wait := problem.GetWait(); wait != nil {
			p.Wait = &akriv0.Wait{Awaited: akriv0.Escape(wait.GetAwaited()), Then: akriv0.Escape(wait.GetThen())}
			// The API server stores whole seconds.
			p.Wait.Since = metav1.NewTime(wait.GetSince().AsTime().Truncate(time.Second))
			p.Wait.Until = metav1.NewTime(wait.GetUntil().AsTime().Truncate(time.Second))
		}
		parsed = append(parsed, p)
	}
	return parsed
}
