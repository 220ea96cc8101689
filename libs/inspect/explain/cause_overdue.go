package explain

import (
	"cmp"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Overdue means that what a link waits for has not happened in time, for a reason that Akri does
// not know.
const Overdue CauseID = "Overdue"

// overdue is the cause of every link whose expectation was not met. No rule finds it: the link
// states what it expects.
func overdue(message string, e expectation) Cause {
	cause := e.cause
	since := metav1.NewTime(e.Since)
	cause.ID, cause.Since = cmp.Or(cause.ID, Overdue), &since
	if cause.byEvent {
		return cause // its message states more
	}
	cause.Message = fmt.Sprintf("%s; %s was expected within %s, by %s",
		message, e.Awaited, short(e.For), e.Until().UTC().Format(time.RFC3339))
	return cause
}

// short returns for example "5m" instead of "5m0s".
func short(d time.Duration) string {
	if d%time.Minute == 0 {
		return fmt.Sprintf("%dm", d/time.Minute)
	}
	return d.String()
}
