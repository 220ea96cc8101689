package status_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/status"
)

var (
	early   = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	active  = []akriv0.HandlerStatus{{Name: "udev", Endpoint: "/h.sock", Status: akriv0.HandlerActive}}
	offline = []akriv0.HandlerStatus{{Name: "udev", Endpoint: "/h.sock", Status: akriv0.HandlerOffline}}
)

func never(string) bool { return false }

func node(name string, handlers []akriv0.HandlerStatus, problems ...string) akriv0.NodeStatus {
	var list []akriv0.Problem
	for _, reason := range problems {
		list = append(list, akriv0.Problem{Reason: reason, Message: "about " + reason})
	}
	return status.Node(name, 1, handlers, list)
}

func complete(nodes ...akriv0.NodeStatus) []status.NodeReport {
	var all []status.NodeReport
	for _, node := range nodes {
		all = append(all, status.NodeReport{NodeStatus: node, Complete: true})
	}
	return all
}

func desired(nodes ...akriv0.NodeStatus) akriv0.ConfigurationStatus {
	return status.Desired(status.Input{Configuration: &akriv0.Configuration{}, Instances: 1, Reports: complete(nodes...), Gone: never, Now: early})
}

// A problem makes the condition that it belongs to False, unless it concerns one node of several.
// Ready does not depend on what nodes report.
func TestConditions(t *testing.T) {
	const (
		registered = akriv0.ConditionHandlerRegistered
		details    = akriv0.ConditionDetailsAccepted
		devices    = akriv0.ConditionDevicesAccepted
	)
	none := []akriv0.HandlerStatus(nil)
	unseen := func(n akriv0.NodeStatus) akriv0.NodeStatus { n.Devices = 0; return n }
	for name, c := range map[string]struct {
		nodes []akriv0.NodeStatus
		// failing is the condition that is False because of the reason.
		failing, reason string
		// unknown are the conditions that were not checked.
		unknown []string
	}{
		"no report":           {nil, "", "", []string{registered, details, devices}},
		"no problem":          {[]akriv0.NodeStatus{node("a", active)}, "", "", nil},
		"handler on no node":  {[]akriv0.NodeStatus{unseen(node("a", none, "HandlerNotRegistered"))}, registered, "HandlerNotRegistered", []string{details, devices}},
		"handler on one node": {[]akriv0.NodeStatus{unseen(node("a", none, "HandlerNotRegistered")), node("b", active)}, "", "", nil},
		"handler offline, its devices stay": {
			[]akriv0.NodeStatus{node("a", offline, "HandlerOffline")}, registered, "HandlerOffline", []string{details},
		},
		"handler without a socket": {
			[]akriv0.NodeStatus{node("a", offline, "HandlerSocketMissing")}, registered, "HandlerSocketMissing", []string{details},
		},
		"bad details on one node of two": {[]akriv0.NodeStatus{node("a", active, "InvalidDetails"), node("b", active)}, details, "InvalidDetails", nil},
		"bad details on the only node": {
			[]akriv0.NodeStatus{unseen(node("a", active, "InvalidDetails"))}, details, "InvalidDetails", []string{devices},
		},
		"forbidden Secret": {[]akriv0.NodeStatus{node("a", active, "PropertyForbidden"), node("b", active)}, details, "PropertyForbidden", nil},
		"discovery fails on the only node": {
			[]akriv0.NodeStatus{unseen(node("a", active, "DiscoverFailed"))}, details, "DiscoverFailed", []string{devices},
		},
		"discovery fails on one of two": {[]akriv0.NodeStatus{node("a", active, "DiscoverFailed"), node("b", active)}, "", "", nil},
		"name taken": {
			[]akriv0.NodeStatus{unseen(node("a", none, "NameTaken"))}, devices, "NameTaken", []string{registered, details},
		},
		"collision":      {[]akriv0.NodeStatus{node("a", active, "DigestCollision")}, devices, "DigestCollision", nil},
		"unknown reason": {[]akriv0.NodeStatus{node("a", active, "SomethingNew")}, devices, "SomethingNew", nil},
	} {
		t.Run(name, func(t *testing.T) {
			got := desired(c.nodes...).Conditions
			require.Len(t, got, 8)
			require.True(t, meta.IsStatusConditionTrue(got, akriv0.ConditionReady))
			for _, kind := range []string{registered, details, devices, akriv0.ConditionSlotsReadable} {
				condition, want := meta.FindStatusCondition(got, kind), metav1.ConditionTrue
				switch {
				case kind == c.failing:
					want = metav1.ConditionFalse
					require.Equal(t, c.reason, condition.Reason)
					require.Equal(t, "a: about "+c.reason, condition.Message)
				case slices.Contains(c.unknown, kind):
					want = metav1.ConditionUnknown
					require.Equal(t, akriv0.ReasonNoReport, condition.Reason)
				}
				require.Equal(t, want, condition.Status, kind)
			}
		})
	}
}

// Ready is True when a Configuration is accepted, also without any node, and Stalled exists only
// while a user has to change something.
func TestReady(t *testing.T) {
	configuration := &akriv0.Configuration{}
	configuration.Generation = 3
	in := status.Input{Configuration: configuration, Gone: never, Now: early}
	write := func(ready metav1.ConditionStatus, reason string) {
		t.Helper()
		configuration.Status = status.Desired(in)
		require.EqualValues(t, 3, configuration.Status.ObservedGeneration)
		found := meta.FindStatusCondition(configuration.Status.Conditions, akriv0.ConditionReady)
		require.Equal(t, ready, found.Status)
		require.Equal(t, reason, found.Reason)
		require.EqualValues(t, 3, found.ObservedGeneration)
		require.Equal(t, ready == metav1.ConditionFalse, meta.IsStatusConditionTrue(configuration.Status.Conditions, akriv0.ConditionStalled))
		require.Equal(t, ready == metav1.ConditionTrue, meta.FindStatusCondition(configuration.Status.Conditions, akriv0.ConditionStalled) == nil)
	}
	spec := func(status metav1.ConditionStatus, reason string) {
		meta.SetStatusCondition(&configuration.Status.Conditions, metav1.Condition{Type: akriv0.ConditionSpecValid, Status: status, Reason: reason})
	}
	write(metav1.ConditionTrue, akriv0.ReasonAsExpected)
	spec(metav1.ConditionFalse, akriv0.ReasonInvalidSpec)
	write(metav1.ConditionFalse, akriv0.ReasonInvalidSpec)
	spec(metav1.ConditionTrue, akriv0.ReasonAsExpected)
	write(metav1.ConditionTrue, akriv0.ReasonAsExpected)
	in.NameTaken = true
	write(metav1.ConditionFalse, akriv0.ReasonNameTaken)
	in.NameTaken = false
	write(metav1.ConditionTrue, akriv0.ReasonAsExpected)
}

func TestTrueConditionListsNodeProblems(t *testing.T) {
	got := desired(node("a", nil, "HandlerNotRegistered"), node("b", active))
	require.Equal(t, "the Discovery Handler is registered; problems: a: about HandlerNotRegistered",
		meta.FindStatusCondition(got.Conditions, akriv0.ConditionHandlerRegistered).Message)
}

// Entries of deleted nodes are removed. Entries of nodes without a report here are kept.
func TestNodeEntries(t *testing.T) {
	configuration := &akriv0.Configuration{}
	configuration.Status.Nodes = []akriv0.NodeStatus{node("gone", nil), node("other", active), node("own", nil)}
	got := status.Desired(status.Input{
		Configuration: configuration, Instances: 3, Reports: complete(node("own", active)),
		Gone: func(n string) bool { return n == "gone" }, Now: early,
	})
	require.Equal(t, []akriv0.NodeStatus{node("other", active), node("own", active)}, got.Nodes)
	require.EqualValues(t, 3, got.Devices)
}

// Replicas with different reports agree, and a second computation changes nothing.
func TestReplicasAgree(t *testing.T) {
	reasons := []string{"HandlerNotRegistered", "InvalidDetails", "DigestCollision", "DiscoverFailed"}
	rapid.Check(t, func(t *rapid.T) {
		var reported []akriv0.NodeStatus
		for _, name := range []string{"a", "b", "c"} {
			handlers := active
			if rapid.Bool().Draw(t, "without") {
				handlers = nil
			}
			reported = append(reported, node(name, handlers, rapid.SliceOfN(rapid.SampledFrom(reasons), 0, 2).Draw(t, "problems")...))
		}
		configuration := &akriv0.Configuration{}
		write := func(now time.Time, nodes ...akriv0.NodeStatus) {
			configuration.Status = status.Desired(status.Input{Configuration: configuration, Instances: 1, Reports: complete(nodes...), Gone: never, Now: now})
		}
		for _, i := range rapid.Permutation([]int{0, 1, 2}).Draw(t, "order") {
			write(early, reported[i])
		}
		want := desired(reported...)
		require.Equal(t, want, configuration.Status)
		write(early.Add(time.Hour), reported...)
		require.Equal(t, want, configuration.Status)
	})
}

func TestDevicesAreCounted(t *testing.T) {
	for _, c := range []struct {
		instances int
		devices   []int // of each node
		want      string
	}{
		{0, []int{0}, "no device matches on n0"},
		{0, []int{0, 0, 0}, "no device matches on n0, n1, n2"},
		{0, []int{0, 0, 0, 0, 0, 0, 0}, "no device matches on n0, n1, n2, n3, n4 and 2 more"},
		{0, []int{1, 0}, "devices on 1 node, none has an Instance yet; see DevicesAccepted"},
		{1, []int{1, 0}, "1 device on 1 node"},
		{1, []int{1, 1}, "1 device on 2 nodes"},
		{2, []int{2, 1, 1}, "2 devices on 3 nodes"},
	} {
		var nodes []akriv0.NodeStatus
		for i, devices := range c.devices {
			nodes = append(nodes, status.Node(fmt.Sprintf("n%d", i), devices, active, nil))
		}
		got := status.Desired(status.Input{
			Configuration: &akriv0.Configuration{}, Instances: c.instances, Reports: complete(nodes...), Gone: never, Now: early,
		})
		require.Contains(t, meta.FindStatusCondition(got.Conditions, akriv0.ConditionDevicesFound).Message, c.want)
	}
}

func TestDevicesFound(t *testing.T) {
	empty := func(name string, handlers []akriv0.HandlerStatus, problems ...string) akriv0.NodeStatus {
		without := node(name, handlers, problems...)
		without.Devices = 0
		return without
	}
	for name, c := range map[string]struct {
		nodes  []akriv0.NodeStatus
		status metav1.ConditionStatus
		reason string
		want   string
	}{
		"no report":     {nil, metav1.ConditionUnknown, "NoReport", "no node has a complete list of devices yet"},
		"no list":       {[]akriv0.NodeStatus{empty("a", nil, "HandlerNotRegistered")}, metav1.ConditionUnknown, "NoReport", "no node has a complete list of devices yet"},
		"refused":       {[]akriv0.NodeStatus{empty("a", active, "InvalidDetails")}, metav1.ConditionUnknown, "NoReport", "no node has a complete list of devices yet"},
		"one node":      {[]akriv0.NodeStatus{empty("a", nil, "HandlerNotRegistered"), empty("b", active)}, metav1.ConditionFalse, "NothingMatched", "no device matches on b; check discoveryDetails; the metrics of Akri's Discovery Handlers count the devices that they examine"},
		"no device":     {[]akriv0.NodeStatus{empty("a", active), empty("b", active)}, metav1.ConditionFalse, "NothingMatched", "no device matches on a, b; check discoveryDetails; the metrics of Akri's Discovery Handlers count the devices that they examine"},
		"device on one": {[]akriv0.NodeStatus{empty("a", active), node("b", active)}, metav1.ConditionTrue, "AsExpected", "1 device on 1 node"},
		"handler lost":  {[]akriv0.NodeStatus{node("a", offline, "HandlerOffline")}, metav1.ConditionTrue, "AsExpected", "1 device on 1 node"},
		"twin offline":  {[]akriv0.NodeStatus{empty("a", append(offline, active...), "HandlerOffline")}, metav1.ConditionUnknown, "NoReport", "no node has a complete list of devices yet"},
	} {
		t.Run(name, func(t *testing.T) {
			instances := 0
			for _, node := range c.nodes {
				instances = max(instances, int(node.Devices))
			}
			got := status.Desired(status.Input{
				Configuration: &akriv0.Configuration{}, Instances: instances, Reports: complete(c.nodes...), Gone: never, Now: early,
			})
			found := meta.FindStatusCondition(got.Conditions, akriv0.ConditionDevicesFound)
			require.Equal(t, c.status, found.Status)
			require.Equal(t, c.reason, found.Reason)
			require.Equal(t, c.want, found.Message)
		})
	}
}

// An incomplete report without problems leaves the status unchanged.
func TestInconclusiveReport(t *testing.T) {
	configuration := &akriv0.Configuration{}
	configuration.Generation = 1
	report := func(r status.NodeReport) *metav1.Condition {
		configuration.Status = status.Desired(status.Input{Configuration: configuration, Reports: []status.NodeReport{r}, Gone: never, Now: early})
		return meta.FindStatusCondition(configuration.Status.Conditions, akriv0.ConditionDetailsAccepted)
	}
	waiting, bad := node("a", active), node("a", active, "InvalidDetails")
	waiting.Devices = 0

	accepted := report(status.NodeReport{NodeStatus: waiting, Generation: 1})
	require.Equal(t, metav1.ConditionUnknown, accepted.Status)
	require.Equal(t, akriv0.ReasonNoReport, accepted.Reason)
	require.Zero(t, accepted.ObservedGeneration)
	require.EqualValues(t, 1, configuration.Status.ObservedGeneration)

	accepted = report(status.NodeReport{NodeStatus: bad, Generation: 1, Complete: true})
	require.Equal(t, metav1.ConditionFalse, accepted.Status)
	require.EqualValues(t, 1, accepted.ObservedGeneration)
	before := configuration.Status.DeepCopy()
	report(status.NodeReport{NodeStatus: waiting, Generation: 1})
	require.Equal(t, *before, configuration.Status, "a node that restarts changes nothing")

	configuration.Generation = 2
	accepted = report(status.NodeReport{NodeStatus: node("a", active), Generation: 1, Complete: true})
	require.EqualValues(t, 1, accepted.ObservedGeneration, "the report is on the previous spec")
	accepted = report(status.NodeReport{NodeStatus: waiting, Generation: 2})
	require.EqualValues(t, 1, accepted.ObservedGeneration)
	require.EqualValues(t, 2, configuration.Status.ObservedGeneration)
	accepted = report(status.NodeReport{NodeStatus: node("a", active), Generation: 2, Complete: true})
	require.EqualValues(t, 2, accepted.ObservedGeneration)
	require.Equal(t, metav1.ConditionTrue, accepted.Status)

	without := node("a", active, "HandlerOffline")
	without.Devices = 0
	report(status.NodeReport{NodeStatus: without, Generation: 2})
	require.EqualValues(t, 1, configuration.Status.Nodes[0].Devices, "an incomplete report removes no device")
}

// The status follows a report without problems that is incomplete and answered: its handlers have
// found no device so far. Its devices may still exist.
func TestAnsweredReport(t *testing.T) {
	configuration := &akriv0.Configuration{}
	configuration.Generation = 1
	silent := status.NodeReport{NodeStatus: status.Node("a", 0, active, nil), Generation: 1, Answered: true}
	configuration.Status = status.Desired(status.Input{Configuration: configuration, Reports: []status.NodeReport{silent}, Gone: never, Now: early})
	accepted := meta.FindStatusCondition(configuration.Status.Conditions, akriv0.ConditionDetailsAccepted)
	require.NotEqual(t, metav1.ConditionUnknown, accepted.Status)
	require.EqualValues(t, 1, accepted.ObservedGeneration)

	configuration.Status.Nodes[0].Devices = 2
	got := status.Desired(status.Input{Configuration: configuration, Reports: []status.NodeReport{silent}, Gone: never, Now: early})
	require.EqualValues(t, 2, got.Nodes[0].Devices)
}

// A handler that can be reached again is no longer offline, even before it has answered. Other
// problems stay until then.
func TestHandlerReachableAgain(t *testing.T) {
	offline := []akriv0.HandlerStatus{{Name: "udev", Endpoint: "/h.sock", Status: akriv0.HandlerOffline}}
	configuration := &akriv0.Configuration{}
	configuration.Status.Nodes = []akriv0.NodeStatus{node("a", offline, "HandlerOffline", "InvalidDevice")}
	report := func(handlers []akriv0.HandlerStatus) akriv0.NodeStatus {
		reports := []status.NodeReport{{NodeStatus: status.Node("a", 0, handlers, nil)}}
		return status.Desired(status.Input{Configuration: configuration, Reports: reports, Gone: never, Now: early}).Nodes[0]
	}
	require.Equal(t, configuration.Status.Nodes[0], report(nil))
	require.Equal(t, configuration.Status.Nodes[0], report(offline))
	require.Equal(t, node("a", active, "InvalidDevice"), report(active))
}

// Properties that differ are a condition.
func TestPropertiesDiffer(t *testing.T) {
	got := status.Desired(status.Input{
		Configuration: &akriv0.Configuration{}, Instances: 1, DifferingProperties: []string{"cam-1 (b)"},
		Reports: []status.NodeReport{{NodeStatus: node("a", active), Complete: true}},
		Gone:    func(string) bool { return false }, Now: time.Now(),
	}).Conditions
	condition := meta.FindStatusCondition(got, akriv0.ConditionPropertiesAgree)
	require.Equal(t, metav1.ConditionFalse, condition.Status)
	require.Equal(t, akriv0.ReasonPropertiesDiffer, condition.Reason)
	require.Contains(t, condition.Message, "cam-1 (b)")
}
