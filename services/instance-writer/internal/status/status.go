// Package status computes the status of a Configuration from the reports of its nodes and its
// Instances. All replicas compute the same status.
//
// The conditions of broker-controller stay as they are. A problem of the Configuration, such as
// invalid details, makes its condition False if one node reports it. A problem of a node, such as a
// handler that is offline, does so only if no node can discover. Otherwise the message of the True
// condition lists it.
package status

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

const (
	maxMessage = 2048
	// maxProblemMessage fits the commands of PropertyForbidden, with long names.
	maxProblemMessage  = 1024
	maxProblemsPerNode = 16
	// maxName is the length of a name in Kubernetes.
	maxName = 253
	// maxListed is the number of nodes that a status lists.
	maxListed = 32
)

// Input of Desired.
type Input struct {
	// Configuration with its current status.
	Configuration *akriv0.Configuration
	// NameTaken means that another Configuration has the name.
	NameTaken bool
	// Undecided means that no Instance is created, because it is not decided how Pods get devices.
	Undecided bool
	// Instances is the number of Instances of the Configuration.
	Instances int
	// MalformedSlots has a message for each slot with a malformed value.
	MalformedSlots []string
	// DifferingProperties has a message for each Instance whose properties differ from those that a
	// node reports.
	DifferingProperties []string
	// Reports of the nodes that are connected to this replica. Other nodes keep their entries.
	Reports []NodeReport
	// Nodes are all Nodes that the Configuration allows, with only the taints that users set.
	Nodes []*corev1.Node
	// NotReporting are the nodes that no longer report to any replica, and since when.
	NotReporting map[string]time.Time
	// Unlisted is what is known about the nodes that the status of a large cluster does not list.
	Unlisted Unlisted
	// DevicesOn returns the number of Instances of the Configuration that list a node.
	DevicesOn func(node string) int
	// Gone reports whether a node no longer exists.
	Gone func(node string) bool
	// Now is the transition time of conditions that change.
	Now time.Time
}

// Unlisted describes nodes without an entry. In a cluster with more nodes than a status lists, the
// status has entries of nodes with problems only.
type Unlisted struct {
	// Reporting returns whether the node reports to any replica.
	Reporting func(node string) bool
	// Settled means that Reporting and Works include the nodes of other replicas. A replica that
	// has just started does not know them.
	Settled bool
	// Works is what works on a node of another replica.
	Works Works
	// WithDevices is the number of nodes that the Instances list.
	WithDevices int
}

// NodeReport is the entry of one node according to its report.
type NodeReport struct {
	akriv0.NodeStatus
	// Complete means that every handler of the node has sent a list.
	Complete bool
	// Answered means that every handler of the node has sent a list, or that it has found no
	// device so far.
	Answered bool
	// Generation of the Configuration that the node discovered. 0: unknown, treated as the newest.
	Generation int64
}

// conclusive reports whether the report replaces the entry of the node. A report that still waits
// for handlers and has no problems does not.
func (r NodeReport) conclusive() bool { return r.Complete || r.Answered || len(r.Problems) > 0 }

// Desired computes the desired status.
func Desired(in Input) akriv0.ConfigurationStatus {
	current := in.Configuration.Status
	nodes := in.summarizeNodes()
	desired := akriv0.ConfigurationStatus{
		ObservedGeneration: in.Configuration.Generation,
		Devices:            int32(min(in.Instances, 1<<31-1)),
		NodesReporting:     int32(nodes.reporting),
		Nodes:              nodes.listed,
		Conditions:         slices.Clone(current.Conditions),
	}
	computed, generation := in.conditions(nodes), in.reportedGeneration()
	for _, condition := range computed {
		in.set(&desired.Conditions, condition, generation)
	}
	in.setReady(&desired.Conditions)
	fit(&desired, computed)
	return desired
}

func (in Input) set(conditions *[]metav1.Condition, condition metav1.Condition, generation int64) {
	condition.ObservedGeneration = generation
	condition.LastTransitionTime = metav1.NewTime(in.Now.Truncate(time.Second))
	meta.SetStatusCondition(conditions, condition)
}

// reportedGeneration returns the newest generation that a node has reported on.
func (in Input) reportedGeneration() int64 {
	newest := in.Configuration.Generation
	reported := func(r NodeReport) bool { return r.conclusive() && (r.Generation == 0 || r.Generation >= newest) }
	if slices.ContainsFunc(in.Reports, reported) {
		return newest
	}
	if before := meta.FindStatusCondition(in.Configuration.Status.Conditions, akriv0.ConditionHandlerRegistered); before != nil {
		return before.ObservedGeneration
	}
	return 0
}

// nodes replaces the entries of the reporting nodes, marks those of nodes that do not report and
// removes those of nodes that no longer exist.
func (in Input) nodes() []akriv0.NodeStatus {
	byName := map[string]akriv0.NodeStatus{}
	for _, node := range expand(in.Configuration.Status.Nodes) {
		byName[node.Name] = node
	}
	for name, since := range in.NotReporting {
		in.markNotReporting(byName, name, since)
	}
	for _, report := range in.Reports {
		previous, exists := byName[report.Name]
		previous.NotReportingSince = nil
		switch {
		case report.conclusive():
			node := limitProblems(report.NodeStatus, maxProblemsPerNode, maxProblemMessage)
			node.Handlers = limitHandlers(node.Handlers, len(node.Handlers), maxName)
			node.ProblemsSince = problemsSince(node, previous)
			if !report.Complete { // devices that it lacks may still exist
				node.Devices = max(node.Devices, previous.Devices)
			}
			byName[report.Name] = node
		case exists && handlerReachable(report.NodeStatus):
			byName[report.Name] = withReachableHandlers(previous, report.Handlers)
		case exists:
			byName[report.Name] = previous
		}
	}
	maps.DeleteFunc(byName, func(name string, _ akriv0.NodeStatus) bool { return in.Gone(name) })
	return slices.SortedFunc(maps.Values(byName), func(a, b akriv0.NodeStatus) int { return cmp.Compare(a.Name, b.Name) })
}

// problemsSince returns the time of the previous entry if it has the same problems, so that
// replicas agree.
func problemsSince(node, previous akriv0.NodeStatus) *metav1.Time {
	switch {
	case len(node.Problems) == 0:
		return nil
	case previous.ProblemsSince != nil && sameProblems(node, previous):
		return previous.ProblemsSince
	}
	return node.ProblemsSince
}

// markNotReporting replaces the entry of a node that has reported before or that an Instance lists.
// An entry that is marked keeps its time, so that replicas agree. The next report replaces it.
func (in Input) markNotReporting(byName map[string]akriv0.NodeStatus, name string, since time.Time) {
	node, exists := byName[name]
	devices := in.DevicesOn(name)
	if !exists && devices == 0 {
		return
	}
	if node.NotReportingSince == nil {
		node = akriv0.NodeStatus{Name: name, NotReportingSince: &metav1.Time{Time: since.Truncate(time.Second)}}
	}
	node.Devices = int32(min(devices, 1<<31-1))
	byName[name] = node
}

// withReachableHandlers returns the entry of a node whose handlers can be reached again but have
// not answered yet.
func withReachableHandlers(node akriv0.NodeStatus, handlers []akriv0.HandlerStatus) akriv0.NodeStatus {
	node.Handlers = limitHandlers(handlers, len(handlers), maxName)
	node.Problems = slices.DeleteFunc(slices.Clone(node.Problems), func(p akriv0.Problem) bool { return isHandlerReason(p.Reason) })
	if len(node.Problems) == 0 {
		node.ProblemsSince = nil
	}
	return node
}

// limitProblems limits the number of problems and the length of their messages.
func limitProblems(node akriv0.NodeStatus, number, length int) akriv0.NodeStatus {
	node.Problems = slices.Clone(node.Problems)
	more := len(node.Problems) - number
	node.Problems = node.Problems[:min(number, len(node.Problems))]
	for i := range node.Problems {
		node.Problems[i] = limitProblem(node.Problems[i], length)
	}
	if more > 0 {
		last := &node.Problems[number-1]
		last.Message = fmt.Sprintf("%s … and %d more problems", last.Message, more)
	}
	return node
}

// limitProblem limits the length of each text of the problem, which a node can choose.
func limitProblem(problem akriv0.Problem, length int) akriv0.Problem {
	problem.Message = clip(problem.Message, length)

	total := 0
	for i, fact := range problem.Evidence {
		if total += len(fact); total > length {
			problem.Evidence = problem.Evidence[:i:i]
			break
		}
	}

	name := min(length, maxName)
	if s := problem.Subject; s != nil {
		problem.Subject = &akriv0.Subject{Kind: clip(s.Kind, name), Namespace: clip(s.Namespace, name), Name: clip(s.Name, name)}
	}
	if w := problem.Wait; w != nil {
		problem.Wait = &akriv0.Wait{Awaited: clip(w.Awaited, name), Since: w.Since, Until: w.Until, Then: clip(w.Then, name)}
	}
	return problem
}

// limitHandlers limits the number of handlers and the length of their texts, which a node can
// choose.
func limitHandlers(handlers []akriv0.HandlerStatus, number, length int) []akriv0.HandlerStatus {
	limited := slices.Clone(handlers[:min(number, len(handlers))])
	for i := range limited {
		limited[i].Name, limited[i].Endpoint = clip(limited[i].Name, length), clip(limited[i].Endpoint, length)
	}
	return limited
}

// clip shortens a text to at most limit bytes. It does not split characters.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-len("…")], "") + "…"
}

// Node returns the entry of one node.
func Node(name string, devices int, handlers []akriv0.HandlerStatus, problems []akriv0.Problem) akriv0.NodeStatus {
	return akriv0.NodeStatus{Name: name, Devices: int32(min(devices, 1<<31-1)), Handlers: handlers, Problems: problems}
}
