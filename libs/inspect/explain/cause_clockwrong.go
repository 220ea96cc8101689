package explain

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// ClockWrong means that the clock of a node differs from that of the API server.
const ClockWrong CauseID = "ClockWrong"

func init() { register(rule{ClockWrong, LinkActive, -1, clockWrong}) }

// The differences from which a clock is wrong. A kubelet reports its time every five minutes by
// default, so that a clock that is behind looks like an old report.
const (
	clockAhead  = time.Minute
	clockBehind = 15 * time.Minute
)

func clockWrong(t target, report func(Cause)) {
	for _, reporting := range t.configuration.Status.Nodes {
		if reporting.NotReportingSince == nil {
			continue
		}
		if cause := wrongClock(t.Snapshot, t.nodeNamed(reporting.Name)); cause != nil {
			cause.Since = reporting.NotReportingSince
			report(*cause)
		}
	}
}

// wrongClock returns the cause if the clock of the node, which may be nil, is wrong. It follows
// from the time of the kubelet's last report on a node that is ready: that of another node can be
// old for other reasons. Without the time of the API server nothing follows, because the clock of
// this machine can be the one that is wrong.
func wrongClock(s *Snapshot, node *corev1.Node) *Cause {
	if node == nil || s.Now.IsZero() {
		return nil
	}

	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
	if i < 0 || node.Status.Conditions[i].LastHeartbeatTime.IsZero() {
		return nil
	}

	ahead := node.Status.Conditions[i].LastHeartbeatTime.Sub(s.Now)
	difference := duration.HumanDuration(ahead.Abs())
	switch {
	case ahead >= clockAhead:
		difference += " ahead of"
	case ahead <= -clockBehind:
		difference += " behind"
	default:
		return nil
	}

	return &Cause{
		ID: ClockWrong, Subject: subject("Node", "", node.Name),
		Message: "the clock of " + node.Name + " is " + difference + " that of the API server, so certificates that are valid there may not be valid on the node",
		Remedies: []Remedy{
			remedy("Set the clock of the node, and find out why it is not synchronized (NTP). Akri connects within a minute after that.",
				"kubectl describe node %s", node.Name),
		},
	}
}
