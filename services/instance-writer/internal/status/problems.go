package status

import (
	"fmt"
	"strings"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// maxNames is the number of nodes that a message names.
const maxNames = 5

// sharedProblem is a problem of all of the nodes.
type sharedProblem struct {
	message string
	nodes   []string
	// partial means that other nodes may have the problem, too.
	partial bool
}

// grouping groups problems by message, in the order in which they are added.
type grouping struct {
	byMessage map[string]*sharedProblem
	problems  []*sharedProblem
	partial   bool
}

func newGrouping(partial bool) *grouping {
	return &grouping{byMessage: map[string]*sharedProblem{}, partial: partial}
}

// add adds a problem. The problems of a node must be added one after the other.
func (g *grouping) add(node, message string) {
	shared := g.byMessage[message]
	if shared == nil {
		shared = &sharedProblem{message: message, partial: g.partial}
		g.byMessage[message] = shared
		g.problems = append(g.problems, shared)
	}
	if len(shared.nodes) == 0 || shared.nodes[len(shared.nodes)-1] != node {
		shared.nodes = append(shared.nodes, node)
	}
}

// problems returns the problems of this rule in the order of the nodes, and the reason of the
// condition: the first problem of the Configuration or, if there is none, the first problem of a
// node.
func (r rule) problems(nodes []akriv0.NodeStatus, partial bool) (problems []*sharedProblem, reason string) {
	grouped := newGrouping(partial)
	for _, node := range nodes {
		for _, problem := range node.Problems {
			if !r.belongs(problem.Reason) {
				continue
			}
			if reason == "" || isNodeReason(reason) && !isNodeReason(problem.Reason) {
				reason = problem.Reason
			}
			grouped.add(node.Name, withoutNode(problem.Message, node.Name))
		}
	}
	return grouped.problems, reason
}

// withoutNode removes the name of the node from its message, so that nodes with the same problem
// have the same message.
func withoutNode(message, node string) string {
	return strings.ReplaceAll(message, fmt.Sprintf(" on node %q", node), "")
}

// summarize lists the problems with their nodes, up to maxMessage bytes.
func summarize(prefix string, problems []*sharedProblem) string {
	var text strings.Builder
	text.WriteString(prefix)
	for i, problem := range problems {
		part := problem.on() + ": " + problem.message
		if i > 0 {
			part = "; " + part
		} else {
			part = clip(part, maxMessage-len(prefix))
		}
		if text.Len()+len(part) > maxMessage {
			fmt.Fprintf(&text, " … and %d more problems", len(problems)-i)
			break
		}
		text.WriteString(part)
	}
	return text.String()
}

// on lists the nodes that have the problem.
func (p *sharedProblem) on() string {
	if p.partial && len(p.nodes) > maxNames {
		return strings.Join(p.nodes[:maxNames], ", ") + " and others"
	}
	return join(p.nodes)
}

// join lists at most maxNames names of nodes.
func join(names []string) string {
	if more := len(names) - maxNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), more)
	}
	return strings.Join(names, ", ")
}
