package status

import (
	"cmp"
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// maxBytes is the size of a status at any number of nodes, in JSON.
const maxBytes = 16 << 10

// Works is what works on at least one of several nodes, one bit for each rule.
type Works uint8

// Rules of Works.
const (
	worksHandler Works = 1 << iota
	worksDiscovery
	worksList
	// worksExamined means that a node has a complete list of devices.
	worksExamined
)

// AllWorks is the Works of nodes without problems.
const AllWorks = worksHandler | worksDiscovery | worksList | worksExamined

// WorksOn returns what works on a node according to its report.
func WorksOn(node akriv0.NodeStatus) Works {
	var works Works
	for _, rule := range rules {
		if rule.works(node) {
			works |= rule.bit
		}
	}
	if examined(node) {
		works |= worksExamined
	}
	return works
}

// summary is the input of the conditions.
type summary struct {
	// listed are the entries of the status.
	listed []akriv0.NodeStatus
	// works is what works on at least one node that reports.
	works Works
	// reporting is the number of nodes that report, lost that of the nodes that no longer do.
	reporting, lost int
	// withDevices is the number of nodes that see devices.
	withDevices int
	// unlisted reports whether a node without an entry reports.
	unlisted func(node string) bool
	// large means that healthy nodes have no entry.
	large bool
}

// summarizeNodes returns the listed nodes and what the conditions need of all nodes. Each replica
// has the reports of other nodes, so the problems of a large cluster are those of the listed nodes.
func (in Input) summarizeNodes() summary {
	nodes := in.nodes()
	s := summary{listed: nodes, unlisted: func(string) bool { return false }}
	for _, node := range nodes {
		if node.Devices > 0 {
			s.withDevices++
		}
		if !notReporting(node) {
			s.reporting++
			s.works |= WorksOn(node)
		}
	}
	if len(in.Nodes) > maxListed {
		in.addUnlisted(&s)
	}
	for _, node := range s.listed {
		if notReporting(node) {
			s.lost++
		}
	}
	return s
}

func (in Input) addUnlisted(s *summary) {
	s.large = true
	s.listed = withProblems(s.listed)
	s.unlisted = in.Unlisted.Reporting
	s.withDevices = in.Unlisted.WithDevices
	s.works |= in.Unlisted.Works
	s.reporting = 0
	for _, node := range in.Nodes {
		if in.Unlisted.Reporting(node.Name) {
			s.reporting++
		}
	}
	if !in.Unlisted.Settled {
		s.reporting = max(s.reporting, int(in.Configuration.Status.NodesReporting))
		s.works |= worksBefore(in.Configuration.Status.Conditions)
	}
}

// withProblems returns the nodes that a status lists in a large cluster.
func withProblems(nodes []akriv0.NodeStatus) []akriv0.NodeStatus {
	listed := slices.DeleteFunc(slices.Clone(nodes), func(n akriv0.NodeStatus) bool { return !notReporting(n) && len(n.Problems) == 0 })
	slices.SortStableFunc(listed, func(a, b akriv0.NodeStatus) int {
		return cmp.Or(since(b).Compare(since(a).Time), cmp.Compare(a.Name, b.Name))
	})
	return listed[:min(len(listed), maxListed)]
}

func since(node akriv0.NodeStatus) metav1.Time {
	if time := cmp.Or(node.NotReportingSince, node.ProblemsSince); time != nil {
		return *time
	}
	return metav1.Time{}
}

// worksBefore returns what works according to the current conditions.
func worksBefore(current []metav1.Condition) Works {
	var works Works
	for _, condition := range current {
		for _, rule := range rules {
			if rule.condition == condition.Type && condition.Status == metav1.ConditionTrue {
				works |= rule.bit
			}
		}
		if condition.Type == akriv0.ConditionDevicesFound && condition.Status != metav1.ConditionUnknown {
			works |= worksExamined
		}
	}
	return works
}

func sameProblems(a, b akriv0.NodeStatus) bool {
	return slices.EqualFunc(a.Problems, b.Problems, func(p, q akriv0.Problem) bool {
		return p.Reason == q.Reason && withoutNode(p.Message, a.Name) == withoutNode(q.Message, b.Name)
	})
}

// fit limits the status to maxBytes. It first removes repeated messages, which expand restores.
// Only a status with many long texts then loses text, and at last nodes, the largest entries first,
// so that no node displaces others; replicas may disagree on it. own are the conditions that it may
// shorten.
func fit(status *akriv0.ConfigurationStatus, own []metav1.Condition) {
	steps := []func(*akriv0.NodeStatus){
		limitMessages(512), limitMessages(256), limitMessages(128), limitMessages(64),
		func(node *akriv0.NodeStatus) { *node = limitProblems(*node, 1, 64) },
		limitLarge(8, 128, len(status.Nodes)), limitLarge(1, 64, len(status.Nodes)),
	}
	if sizeOf(*status) > maxBytes {
		status.Nodes = shareMessages(status.Nodes)
	}
	for ; sizeOf(*status) > maxBytes && len(steps) > 0; steps = steps[1:] {
		for i := range status.Nodes {
			steps[0](&status.Nodes[i])
		}
	}
	// The conditions of other writers alone can exceed maxBytes.
	for limit := maxMessage / 2; sizeOf(*status) > maxBytes && limit >= 64; limit /= 2 {
		status.Nodes = withoutLargest(status.Nodes, len(status.Nodes)-len(status.Nodes)/2)
		for i := range status.Conditions {
			if condition := &status.Conditions[i]; meta.FindStatusCondition(own, condition.Type) != nil {
				condition.Message = clip(condition.Message, limit)
			}
		}
	}
}

// limitLarge limits the handlers of an entry that has more than its share of the status.
func limitLarge(number, length, nodes int) func(*akriv0.NodeStatus) {
	return func(node *akriv0.NodeStatus) {
		if sizeOf(*node) > maxBytes/2/nodes {
			node.Handlers = limitHandlers(node.Handlers, number, length)
		}
	}
}

// withoutLargest returns the nodes without those with the largest entries.
func withoutLargest(nodes []akriv0.NodeStatus, number int) []akriv0.NodeStatus {
	bySize := slices.SortedStableFunc(slices.Values(nodes), func(a, b akriv0.NodeStatus) int { return cmp.Compare(sizeOf(b), sizeOf(a)) })
	removed := map[string]bool{}
	for _, node := range bySize[:number] {
		removed[node.Name] = true
	}
	return slices.DeleteFunc(nodes, func(node akriv0.NodeStatus) bool { return removed[node.Name] })
}

func limitMessages(limit int) func(*akriv0.NodeStatus) {
	return func(node *akriv0.NodeStatus) { *node = limitProblems(*node, maxProblemsPerNode, limit) }
}

// sizeOf returns the size of a status, or of a part of it, in JSON.
func sizeOf(part any) int {
	encoded, err := json.Marshal(part)
	if err != nil {
		panic(err) // the types have only strings, numbers and times
	}
	return len(encoded)
}

// shareMessages removes the messages that an earlier node has with the same reason, and their
// evidence. expand restores them, so that every replica has them.
func shareMessages(nodes []akriv0.NodeStatus) []akriv0.NodeStatus {
	return withMessages(nodes, func(problem *akriv0.Problem, node string, first akriv0.Problem) {
		if withoutNode(problem.Message, node) == first.Message {
			problem.Message, problem.Evidence = "", nil
		}
	})
}

func expand(nodes []akriv0.NodeStatus) []akriv0.NodeStatus {
	return withMessages(nodes, func(problem *akriv0.Problem, _ string, first akriv0.Problem) {
		if problem.Message == "" {
			problem.Message, problem.Evidence = first.Message, first.Evidence
		}
	})
}

// withMessages calls change with each problem whose reason an earlier problem has, and with the
// first one, whose message does not name its node. It returns changed copies.
func withMessages(nodes []akriv0.NodeStatus, change func(problem *akriv0.Problem, node string, first akriv0.Problem)) []akriv0.NodeStatus {
	changed := slices.Clone(nodes)
	firsts := map[string]akriv0.Problem{}
	for i := range changed {
		node := &changed[i]
		node.Problems = slices.Clone(node.Problems)
		for k := range node.Problems {
			problem := &node.Problems[k]
			if first, exists := firsts[problem.Reason]; exists {
				change(problem, node.Name, first)
			} else {
				first := *problem
				first.Message = withoutNode(problem.Message, node.Name)
				firsts[problem.Reason] = first
			}
		}
	}
	return changed
}
