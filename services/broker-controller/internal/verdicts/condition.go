package verdicts

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
)

// maxMessage limits the message of a condition in bytes.
const maxMessage = 2048

// conditionTypes are the conditions that have the verdict on a kind of subject.
var conditionTypes = map[string]string{
	explain.SubjectDevices: akriv0.ConditionDevicesWorking,
	explain.SubjectBrokers: akriv0.ConditionBrokersWorking,
}

// kinds are the kinds of subjects in metrics.
var kinds = map[string]string{
	explain.SubjectDevices: "devices", explain.SubjectBrokers: "brokers", "Instance": "device", "Pod": "broker", "Node": "node",
	"DaemonSet": "service", "Deployment": "service", "Service": "service", "ConfigMap": "service", explain.SubjectDefinition: "service", akriv0.SubjectHandler: "handler",
}

var statuses = map[explain.State]metav1.ConditionStatus{
	explain.Works: metav1.ConditionTrue, explain.Waiting: metav1.ConditionUnknown, explain.Skipped: metav1.ConditionUnknown,
	explain.Partly: metav1.ConditionFalse, explain.Broken: metav1.ConditionFalse,
	explain.NoneFound: metav1.ConditionFalse, explain.OutOfService: metav1.ConditionFalse,
}

// condition returns the condition with a verdict. Its reason is the state.
func condition(kind string, verdict explain.Verdict) metav1.Condition {
	return metav1.Condition{Type: kind, Status: statuses[verdict.State], Reason: reasonOf(verdict.State), Message: message(verdict)}
}

// reasonOf returns the state, with the word for subjects that do not exist.
func reasonOf(state explain.State) string {
	if state == explain.Skipped {
		return akriv0.ReasonNotNeeded
	}
	return string(state)
}

// message states the cause, the first remedy and what is waited for.
func message(verdict explain.Verdict) string {
	parts := []string{verdict.Summary()}
	if len(verdict.Causes) > 0 && len(verdict.Causes[0].Remedies) > 0 && verdict.State != explain.NoneFound {
		remedy := verdict.Causes[0].Remedies[0]
		parts = append(parts, strings.TrimSuffix(remedy.Text, ".")+": "+remedy.Command)
	}
	if wait := verdict.Wait; wait != nil {
		text := "waits for " + wait.Awaited + " since " + wait.Since.UTC().Format(time.RFC3339)
		if !wait.Until.IsZero() {
			text += "; at " + wait.Until.UTC().Format(time.RFC3339) + " " + wait.Then
		}
		parts = append(parts, text)
	}
	return clip(strings.Join(parts, "; "))
}

// clip does not split characters.
func clip(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	const mark = "…"
	return strings.ToValidUTF8(message[:maxMessage-len(mark)], "") + mark
}

func same(a, b []metav1.Condition) bool { return slices.Equal(a, b) }
