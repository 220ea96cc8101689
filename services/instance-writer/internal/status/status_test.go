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

func TestConditions(t *testing.T) {
	const details, devices = akriv0.ConditionDetailsAccepted, akriv0.ConditionDevicesAccepted
	none := []akriv0.HandlerStatus(nil)
	unseen := func(n akriv0.NodeStatus) akriv0.NodeStatus { n.Devices = 0; return n }
	for name, c := range map[string]struct {
		nodes   []akriv0.NodeStatus
		failing string
		// unknown are the conditions that were not checked.
		unknown []string
		ready   metav1.ConditionStatus
		reason  string
		message string
	}{
		"no report": {
			nil, "", []string{akriv0.ConditionHandlerRegistered, details, devices}, metav1.ConditionUnknown, "NoReport", "no node has reported yet",
		},
		"no problem": {[]akriv0.NodeStatus{node("a", active)}, "", nil, metav1.ConditionTrue, "AsExpected", "1 device on 1 node"},
		"handler on no node": {
			[]akriv0.NodeStatus{unseen(node("a", none, "HandlerNotRegistered"))}, akriv0.ConditionHandlerRegistered, []string{details, devices},
			metav1.ConditionFalse, "HandlerNotRegistered", "a: about HandlerNotRegistered",
		},
		"handler on one node of two": {
			[]akriv0.NodeStatus{unseen(node("a", none, "HandlerNotRegistered")), node("b", active)}, "", nil,
			metav1.ConditionTrue, "AsExpected", "1 device on 1 node",
		},
		"handler offline, its devices stay": {
			[]akriv0.NodeStatus{node("a", offline, "HandlerOffline")}, akriv0.ConditionHandlerRegistered, []string{details},
			metav1.ConditionFalse, "HandlerOffline", "a: about HandlerOffline",
		},
		"bad details on one node of two": {
			[]akriv0.NodeStatus{node("a", active, "InvalidDetails"), node("b", active)}, details, nil,
			metav1.ConditionFalse, "InvalidDetails", "a: about InvalidDetails",
		},
		"bad details on the only node": {
			[]akriv0.NodeStatus{unseen(node("a", active, "InvalidDetails"))}, details, []string{devices},
			metav1.ConditionFalse, "InvalidDetails", "a: about InvalidDetails",
		},
		"forbidden Secret": {
			[]akriv0.NodeStatus{node("a", active, "PropertyForbidden"), node("b", active)}, details, nil,
			metav1.ConditionFalse, "PropertyForbidden", "a: about PropertyForbidden",
		},
		"discovery fails on the only node": {
			[]akriv0.NodeStatus{unseen(node("a", active, "DiscoverFailed"))}, details, []string{devices},
			metav1.ConditionFalse, "DiscoverFailed", "a: about DiscoverFailed",
		},
		"discovery fails on one of two": {
			[]akriv0.NodeStatus{node("a", active, "DiscoverFailed"), node("b", active)}, "", nil,
			metav1.ConditionTrue, "AsExpected", "1 device on 2 nodes",
		},
		"name taken": {
			[]akriv0.NodeStatus{unseen(node("a", none, "NameTaken"))}, devices, []string{akriv0.ConditionHandlerRegistered, details},
			metav1.ConditionFalse, "NameTaken", "a: about NameTaken",
		},
		"collision": {
			[]akriv0.NodeStatus{node("a", active, "DigestCollision")}, devices, nil,
			metav1.ConditionFalse, "DigestCollision", "a: about DigestCollision",
		},
		"unknown reason": {
			[]akriv0.NodeStatus{node("a", active, "SomethingNew")}, devices, nil, metav1.ConditionFalse, "SomethingNew", "a: about SomethingNew",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := desired(c.nodes...).Conditions
			require.Len(t, got, 8)
			ready := meta.FindStatusCondition(got, akriv0.ConditionReady)
			require.Equal(t, c.ready, ready.Status)
			require.Equal(t, c.reason, ready.Reason)
			require.Equal(t, c.message, ready.Message)
			for _, condition := range got[2:6] {
				want := metav1.ConditionTrue
				switch {
				case condition.Type == c.failing:
					want = metav1.ConditionFalse
				case slices.Contains(c.unknown, condition.Type):
					want = metav1.ConditionUnknown
					require.Equal(t, akriv0.ReasonNoReport, condition.Reason)
				}
				require.Equal(t, want, condition.Status, condition.Type)
			}
		})
	}
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
		unknown := slices.ContainsFunc(want.Conditions[2:6], func(c metav1.Condition) bool { return c.Status == metav1.ConditionUnknown })
		require.Falsef(t, unknown && want.Conditions[0].Status == metav1.ConditionTrue, "%+v", want.Conditions)
		write(early.Add(time.Hour), reported...)
		require.Equal(t, want, configuration.Status)
	})
}

func TestReadyMessageCountsDevices(t *testing.T) {
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
		ready := meta.FindStatusCondition(got.Conditions, akriv0.ConditionReady)
		require.Equal(t, metav1.ConditionTrue, ready.Status)
		require.Equal(t, c.want, ready.Message)
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
		return meta.FindStatusCondition(configuration.Status.Conditions, akriv0.ConditionReady)
	}
	waiting, bad := node("a", active), node("a", active, "InvalidDetails")
	waiting.Devices = 0

	ready := report(status.NodeReport{NodeStatus: waiting, Generation: 1})
	require.Equal(t, metav1.ConditionUnknown, ready.Status)
	require.Equal(t, akriv0.ReasonNoReport, ready.Reason)
	require.Zero(t, ready.ObservedGeneration)
	require.Zero(t, configuration.Status.ObservedGeneration)

	ready = report(status.NodeReport{NodeStatus: bad, Generation: 1, Complete: true})
	require.Equal(t, metav1.ConditionFalse, ready.Status)
	require.EqualValues(t, 1, ready.ObservedGeneration)
	before := configuration.Status.DeepCopy()
	report(status.NodeReport{NodeStatus: waiting, Generation: 1})
	require.Equal(t, *before, configuration.Status, "a node that restarts changes nothing")

	configuration.Generation = 2
	ready = report(status.NodeReport{NodeStatus: node("a", active), Generation: 1, Complete: true})
	require.EqualValues(t, 1, ready.ObservedGeneration, "the report is on the previous spec")
	report(status.NodeReport{NodeStatus: waiting, Generation: 2})
	require.EqualValues(t, 1, configuration.Status.ObservedGeneration)
	ready = report(status.NodeReport{NodeStatus: node("a", active), Generation: 2, Complete: true})
	require.EqualValues(t, 2, ready.ObservedGeneration)
	require.Equal(t, metav1.ConditionTrue, ready.Status)

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
	ready := meta.FindStatusCondition(configuration.Status.Conditions, akriv0.ConditionReady)
	require.NotEqual(t, metav1.ConditionUnknown, ready.Status)
	require.EqualValues(t, 1, ready.ObservedGeneration)

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

// Properties that differ are a condition, and do not affect Ready.
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
	require.True(t, meta.IsStatusConditionTrue(got, akriv0.ConditionReady))
}
