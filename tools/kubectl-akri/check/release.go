package check

import (
	"fmt"
	"strings"
	"time"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
)

// Release is the last revision of a Helm release.
type Release struct {
	Name      string
	Namespace string
	Status    string
	Revision  int
	// Changed is when the revision got its status.
	Changed time.Time
	// Missing are the objects of the release that do not exist.
	Missing []akriv0.Subject
}

// longestOperation is more than the time limit of Helm's operations, 5 minutes, unless a user
// changes it.
const longestOperation = 10 * time.Minute

// release checks that no operation of Helm was interrupted, and that all objects of the release
// exist. Helm refuses further operations after one that was interrupted.
func release(r Release, now time.Time) Result {
	const name = "Helm release"
	since := now.Sub(r.Changed).Round(time.Second)
	switch isPending := strings.HasPrefix(r.Status, "pending-"); {
	case isPending && since < longestOperation:
		return Result{Name: name, Outcome: Warning, Message: fmt.Sprintf("%s is %s for %s", r.Name, r.Status, since)}
	case isPending:
		return Result{
			Name: name, Outcome: Failed, Remedies: []explain.Remedy{afterInterruption(r)},
			Message: fmt.Sprintf("%s is %s for %s: Helm was interrupted, and refuses further operations", r.Name, r.Status, since),
		}
	case len(r.Missing) > 0:
		return Result{
			Name: name, Outcome: Failed, Message: "these objects of " + r.Name + " do not exist: " + namesOf(r.Missing),
			Remedies: []explain.Remedy{{ // which restarts nothing: no value changes
				Text:    "Let Helm create them again.",
				Command: fmt.Sprintf("helm upgrade %s charts/akri --namespace %s --reset-then-reuse-values", r.Name, r.Namespace),
			}},
		}
	case r.Status == "failed":
		return Result{
			Name: name, Outcome: Warning, Message: fmt.Sprintf("revision %d of %s has failed", r.Revision, r.Name),
			Remedies: []explain.Remedy{{Text: "Read why.", Command: fmt.Sprintf("helm status %s --namespace %s", r.Name, r.Namespace)}},
		}
	default:
		return passed(name, fmt.Sprintf("revision %d of %s is %s, and all its objects exist", r.Revision, r.Name, r.Status))
	}
}

func afterInterruption(r Release) explain.Remedy {
	remedy := explain.Remedy{Text: "Return to the revision before.", Command: fmt.Sprintf("helm rollback %s --namespace %s", r.Name, r.Namespace)}
	if r.Revision == 1 {
		remedy.Text = "Uninstall what exists, and install again."
		remedy.Command = fmt.Sprintf("helm uninstall %s --namespace %s", r.Name, r.Namespace)
	}
	remedy.Interrupts = []akriv0.Subject{{Kind: "Release", Namespace: r.Namespace, Name: r.Name}}
	return remedy
}

func namesOf(objects []akriv0.Subject) string {
	var names []string
	for _, object := range objects {
		names = append(names, object.Kind+" "+strings.TrimPrefix(object.Namespace+"/"+object.Name, "/"))
	}
	return explain.NodeList(names)
}
