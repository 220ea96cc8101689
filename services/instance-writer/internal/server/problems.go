package server

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// Limits of what a node reports besides its devices. Nodes of Akri report less.
const (
	maxHandlerStates = 16
	maxProblems      = 64
	maxEvidence      = 16
	maxText          = 2 << 10 // bytes
)

// text limits and escapes the text of a node: the status of a Configuration is shown on terminals.
func text(of string) string {
	escaped := akriv0.Escape(of[:min(len(of), maxText)]) // which is longer
	if len(escaped) < maxText && len(of) <= maxText {
		return escaped
	}
	return strings.ToValidUTF8(escaped[:min(len(escaped), maxText)], "") + " …"
}

var lineBreaks = strings.NewReplacer("\n", `\u000a`, "\t", `\u0009`)

// line is text for what is shown as a part of a line, such as a name: with a line break, a node
// could add rows to tables.
func line(of string) string { return text(lineBreaks.Replace(of[:min(len(of), maxText+1)])) }

// first returns at most count items.
func first[T any](items []T, count int) []T { return items[:min(len(items), count)] }

func parseProblems(problems []*instancev1.Problem) []akriv0.Problem {
	var parsed []akriv0.Problem
	for _, problem := range first(problems, maxProblems) {
		p := akriv0.Problem{Reason: problem.GetReason(), Message: text(problem.GetMessage())}
		for _, evidence := range first(problem.GetEvidence(), maxEvidence) {
			p.Evidence = append(p.Evidence, line(evidence))
		}

		if subject := problem.GetSubject(); subject != nil {
			p.Subject = &akriv0.Subject{
				Kind: line(subject.GetKind()), Namespace: line(subject.GetNamespace()), Name: line(subject.GetName()),
			}
		}

		if wait := problem.GetWait(); wait != nil {
			p.Wait = &akriv0.Wait{Awaited: line(wait.GetAwaited()), Then: line(wait.GetThen())}
			// The API server stores whole seconds.
			p.Wait.Since = metav1.NewTime(wait.GetSince().AsTime().Truncate(time.Second))
			p.Wait.Until = metav1.NewTime(wait.GetUntil().AsTime().Truncate(time.Second))
		}
		parsed = append(parsed, p)
	}
	return parsed
}
