package server

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

func parseProblems(problems []*instancev1.Problem) []akriv0.Problem {
	var parsed []akriv0.Problem
	for _, problem := range problems {
		p := akriv0.Problem{Reason: problem.GetReason(), Message: problem.GetMessage(), Evidence: problem.GetEvidence()}

		if subject := problem.GetSubject(); subject != nil {
			p.Subject = &akriv0.Subject{Kind: subject.GetKind(), Namespace: subject.GetNamespace(), Name: subject.GetName()}
		}

		if wait := problem.GetWait(); wait != nil {
			p.Wait = &akriv0.Wait{Awaited: wait.GetAwaited(), Then: wait.GetThen()}
			// The API server stores whole seconds.
			p.Wait.Since = metav1.NewTime(wait.GetSince().AsTime().Truncate(time.Second))
			p.Wait.Until = metav1.NewTime(wait.GetUntil().AsTime().Truncate(time.Second))
		}
		parsed = append(parsed, p)
	}
	return parsed
}
