// Package status is what a Configuration's status says: a pure function of what its nodes report
// and how many Instances it has, so that all replicas agree.
//
// Ready is True when every other condition is. Some problems concern the Configuration wherever
// they are seen (details that a handler cannot parse, a device that cannot be offered, a name that
// is taken) and make their condition False. Others concern a node (its handler is not registered,
// offline, or fails): they make it False only when no node can discover, and are named in the
// message of a True condition otherwise.
package status

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

const (
	maxMessage         = 1024
	maxProblemMessage  = 512
	maxProblemsPerNode = 16
)

// Input is all that the status depends on.
type Input struct {
	// Configuration with the status that it has.
	Configuration *akriv0.Configuration
	// Instances is how many there are.
	Instances int
	// Unreadable are sentences about slots whose value cannot be read.
	Unreadable []string
	// Heard is what the nodes report to this replica; other nodes keep their entries.
	Heard []Report
	// Gone tells whether a node does not exist any more.
	Gone func(node string) bool
	// Now is the time of conditions that change.
	Now time.Time
}

// Report is the entry of one node as it reports it.
type Report struct {
	akriv0.NodeStatus
	// Complete: the node has heard every handler.
	Complete bool
	// Generation of the Configuration that it answers; 0: not known, taken as the newest.
	Generation int64
}

// says tells whether the report is an answer. One that waits for handlers and knows of nothing
// wrong is none: what the node said before still stands.
func (r Report) says() bool { return r.Complete || len(r.Problems) > 0 }

// Desired is what the status should be.
func Desired(in Input) akriv0.ConfigurationStatus {
	current := in.Configuration.Status
	desired := akriv0.ConfigurationStatus{
		ObservedGeneration: in.observed(),
		Devices:            int32(min(in.Instances, 1<<31-1)), // bounded
		Nodes:              nodes(current.Nodes, in.Heard, in.Gone),
	}
	for _, condition := range current.Conditions {
		desired.Conditions = append(desired.Conditions, *condition.DeepCopy())
	}
	for _, condition := range conditions(desired.Nodes, in.Unreadable) {
		condition.ObservedGeneration = desired.ObservedGeneration
		condition.LastTransitionTime = metav1.NewTime(in.Now.Truncate(time.Second))
		meta.SetStatusCondition(&desired.Conditions, condition)
	}
	return desired
}

// observed is the newest spec that a node has answered.
func (in Input) observed() int64 {
	newest := in.Configuration.Generation
	answers := func(r Report) bool { return r.says() && (r.Generation == 0 || r.Generation >= newest) }
	if slices.ContainsFunc(in.Heard, answers) {
		return newest
	}
	return in.Configuration.Status.ObservedGeneration
}

func nodes(current []akriv0.NodeStatus, heard []Report, gone func(string) bool) []akriv0.NodeStatus {
	former := map[string]akriv0.NodeStatus{}
	for _, node := range current {
		former[node.Name] = node
	}
	own := map[string]bool{}
	var all []akriv0.NodeStatus
	for _, report := range heard {
		if !report.says() {
			continue
		}
		node := bounded(report.NodeStatus)
		if !report.Complete { // what it lacks may still be there
			node.Devices = max(node.Devices, former[node.Name].Devices)
		}
		own[node.Name] = true
		all = append(all, node)
	}
	for _, node := range current {
		if !own[node.Name] {
			all = append(all, node)
		}
	}
	all = slices.DeleteFunc(all, func(n akriv0.NodeStatus) bool { return gone(n.Name) })
	slices.SortFunc(all, func(a, b akriv0.NodeStatus) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

func bounded(node akriv0.NodeStatus) akriv0.NodeStatus {
	node.Problems = slices.Clone(node.Problems)
	if more := len(node.Problems) - maxProblemsPerNode; more > 0 {
		node.Problems = node.Problems[:maxProblemsPerNode]
		last := &node.Problems[maxProblemsPerNode-1]
		last.Message = fmt.Sprintf("%s … and %d more problems", clip(last.Message, maxProblemMessage), more)
		return node
	}
	for i := range node.Problems {
		node.Problems[i].Message = clip(node.Problems[i].Message, maxProblemMessage)
	}
	return node
}

// clip shortens a text to at most limit bytes, without cutting a letter in two.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len("…")], "") + "…"
}

// Node is the entry of one node.
func Node(name string, devices int, handlers []akriv0.HandlerStatus, problems []akriv0.Problem) akriv0.NodeStatus {
	return akriv0.NodeStatus{Name: name, Devices: int32(min(devices, 1<<31-1)), Handlers: handlers, Problems: problems} // bounded
}
