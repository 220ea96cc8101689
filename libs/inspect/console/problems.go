package console

import (
	"net/url"
	"slices"
	"time"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/status"
)

// maxProblems is the number of problems with the same state and kind on the overview.
const maxProblems = 10

// problem is a verdict on a subject that does not work.
type problem struct {
	explain.Verdict

	Since time.Time
	// More is the number of further verdicts with this state and kind, which are not shown.
	More int
}

// overviewPage begins with what does not work.
type overviewPage struct {
	status.Overview

	Problems []problem
	// Checked is the number of all verdicts.
	Checked int
}

func overview(v view) (string, any, bool) {
	verdicts, checked := v.problems()
	page := overviewPage{Overview: status.Of(v.Snapshot), Checked: checked}
	type group struct {
		state explain.State
		kind  string
	}
	shown, last := map[group]int{}, map[group]int{}
	for _, verdict := range verdicts {
		g := group{verdict.State, verdict.Subject.Kind}
		if shown[g]++; shown[g] > maxProblems {
			page.Problems[last[g]].More++
			continue
		}
		last[g] = len(page.Problems)
		page.Problems = append(page.Problems, problem{Verdict: verdict, Since: v.Since(verdict).Time})
	}
	return "Overview", page, true
}

// problems returns the verdicts on what does not work, the worst first, and the number of all
// verdicts.
func (v view) problems() (found []explain.Verdict, checked int) {
	all := explain.Verdicts(v.Snapshot)
	for _, verdict := range all {
		if verdict.State != explain.Works && verdict.State != explain.Skipped {
			found = append(found, verdict)
		}
	}
	slices.SortStableFunc(found, explain.BySeverity)
	return found, len(all)
}

func problems(v view) (string, any, bool) {
	verdicts, _ := v.problems()
	var rows []row
	for _, verdict := range verdicts {
		subject := verdict.Subject
		r := row{
			Value: problem{Verdict: verdict, Since: v.Since(verdict).Time},
			values: map[string][]string{
				"state": {string(verdict.State)}, "kind": {subject.Kind}, "namespace": {subject.Namespace},
			},
			words: []string{subject.Kind, subject.Namespace, subject.Name, verdict.Summary()},
		}
		for _, cause := range verdict.Causes {
			r.values["cause"] = append(r.values["cause"], string(cause.ID))
		}
		rows = append(rows, r)
	}
	return "Problems", v.list("problem", rows), true
}

// path returns the address of the page about a subject, or nothing if there is none.
func path(subject akriv0.Subject) string {
	switch subject.Kind {
	case "Instance":
		return objectPath("devices", subject.Namespace, subject.Name)
	case "Configuration", explain.SubjectDevices, explain.SubjectBrokers:
		return objectPath("configurations", subject.Namespace, subject.Name)
	case "Pod":
		return objectPath("pods", subject.Namespace, subject.Name)
	case "Node":
		return "/nodes/" + url.PathEscape(subject.Name)
	case akriv0.SubjectHandler:
		return "/handlers?handler=" + url.QueryEscape(subject.Name)
	case "DaemonSet", "Deployment", explain.SubjectDefinition, "Service", "ConfigMap", "Secret":
		return "/services#" + subject.Kind + "-" + url.PathEscape(subject.Name)
	default:
		return ""
	}
}

func objectPath(page, namespace, name string) string {
	return "/" + page + "/" + url.PathEscape(namespace) + "/" + url.PathEscape(name)
}

// title returns the name of a subject with its kind.
func title(subject akriv0.Subject) string {
	if subject.Namespace == "" {
		return subject.Kind + " " + subject.Name
	}
	return subject.Kind + " " + subject.Namespace + "/" + subject.Name
}
