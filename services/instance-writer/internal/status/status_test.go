package status_test

import (
	"fmt"
	"strings"
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
	early  = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	active = []akriv0.HandlerStatus{{Name: "udev", Endpoint: "/h.sock", Status: "Active"}}
)

func never(string) bool { return false }

func node(name string, handlers []akriv0.HandlerStatus, problems ...string) akriv0.NodeStatus {
	var list []akriv0.Problem
	for _, reason := range problems {
		list = append(list, akriv0.Problem{Reason: reason, Message: "about " + reason})
	}
	return status.Node(name, 1, handlers, list)
}

func complete(nodes ...akriv0.NodeStatus) []status.Report {
	var all []status.Report
	for _, node := range nodes {
		all = append(all, status.Report{NodeStatus: node, Complete: true})
	}
	return all
}

func desired(nodes ...akriv0.NodeStatus) akriv0.ConfigurationStatus {
	return status.Desired(status.Input{Configuration: &akriv0.Configuration{}, Heard: complete(nodes...), Gone: never, Now: early})
}

func TestConditions(t *testing.T) {
	for name, c := range map[string]struct {
		nodes       []akriv0.NodeStatus
		failing     string
		ready       metav1.ConditionStatus
		reason      string
		messageHas  string
		otherwiseOK bool
	}{
		"nobody reported": {nil, akriv0.ConditionHandlerRegistered, metav1.ConditionUnknown, "NoReport", "no node has reported yet", false},
		"all well":        {[]akriv0.NodeStatus{node("a", active)}, "", metav1.ConditionTrue, "AsExpected", "all is well", true},
		"handler nowhere": {[]akriv0.NodeStatus{node("a", nil, "HandlerNotRegistered")}, akriv0.ConditionHandlerRegistered, metav1.ConditionFalse,
			"HandlerNotRegistered", "a: about HandlerNotRegistered", true},
		"handler on one node of two": {[]akriv0.NodeStatus{node("a", nil, "HandlerNotRegistered"), node("b", active)}, "", metav1.ConditionTrue,
			"AsExpected", "all is well", true},
		"bad details on one node of two": {[]akriv0.NodeStatus{node("a", active, "InvalidDetails"), node("b", active)}, akriv0.ConditionDetailsAccepted,
			metav1.ConditionFalse, "InvalidDetails", "a: about InvalidDetails", true},
		"a Secret that may not be read": {[]akriv0.NodeStatus{node("a", active, "PropertyForbidden"), node("b", active)}, akriv0.ConditionDetailsAccepted,
			metav1.ConditionFalse, "PropertyForbidden", "a: about PropertyForbidden", true},
		"discovery fails on the only node": {[]akriv0.NodeStatus{node("a", active, "DiscoverFailed")}, akriv0.ConditionDetailsAccepted,
			metav1.ConditionFalse, "DiscoverFailed", "a: about DiscoverFailed", true},
		"discovery fails on one of two": {[]akriv0.NodeStatus{node("a", active, "DiscoverFailed"), node("b", active)}, "", metav1.ConditionTrue,
			"AsExpected", "all is well", true},
		"collision": {[]akriv0.NodeStatus{node("a", active, "DigestCollision")}, akriv0.ConditionDevicesAccepted, metav1.ConditionFalse,
			"DigestCollision", "a: about DigestCollision", true},
		"a reason of tomorrow": {[]akriv0.NodeStatus{node("a", active, "SomethingNew")}, akriv0.ConditionDevicesAccepted, metav1.ConditionFalse,
			"SomethingNew", "a: about SomethingNew", true},
	} {
		t.Run(name, func(t *testing.T) {
			got := desired(c.nodes...).Conditions
			require.Len(t, got, 5)
			ready := meta.FindStatusCondition(got, akriv0.ConditionReady)
			require.Equal(t, c.ready, ready.Status)
			require.Equal(t, c.reason, ready.Reason)
			require.Equal(t, c.messageHas, ready.Message)
			for _, condition := range got[1:] {
				if condition.Type == c.failing {
					require.Equal(t, c.ready, condition.Status)
				} else if c.otherwiseOK {
					require.Equal(t, metav1.ConditionTrue, condition.Status, condition.Type)
				}
			}
		})
	}
}

func TestATrueConditionNamesTheNodesThatLackTheHandler(t *testing.T) {
	got := desired(node("a", nil, "HandlerNotRegistered"), node("b", active))
	require.Equal(t, "the Discovery Handler is registered; but a: about HandlerNotRegistered",
		meta.FindStatusCondition(got.Conditions, akriv0.ConditionHandlerRegistered).Message)
}

func TestMessagesAreBounded(t *testing.T) {
	var nodes []akriv0.NodeStatus
	for i := range 500 {
		nodes = append(nodes, akriv0.NodeStatus{Name: fmt.Sprintf("node-%03d", i), Problems: []akriv0.Problem{{Reason: "InvalidDetails", Message: strings.Repeat("ä", 2000)}}})
	}
	got := desired(nodes...)
	message := meta.FindStatusCondition(got.Conditions, akriv0.ConditionReady).Message
	require.LessOrEqual(t, len(message), 1100)
	require.Contains(t, message, "… and 499 more nodes")
	require.LessOrEqual(t, len(got.Nodes[0].Problems[0].Message), 512)
}

func TestNodesThatAreGoneLeaveAndOthersKeepWhatTheySaid(t *testing.T) {
	configuration := &akriv0.Configuration{}
	configuration.Status.Nodes = []akriv0.NodeStatus{node("gone", nil), node("other", active), node("own", nil)}
	got := status.Desired(status.Input{
		Configuration: configuration, Instances: 3, Heard: complete(node("own", active)),
		Gone: func(n string) bool { return n == "gone" }, Now: early,
	})
	require.Equal(t, []akriv0.NodeStatus{node("other", active), node("own", active)}, got.Nodes)
	require.EqualValues(t, 3, got.Devices)
}

func TestReplicasAgreeAndASecondLookChangesNothing(t *testing.T) {
	reasons := []string{"HandlerNotRegistered", "InvalidDetails", "DigestCollision", "DiscoverFailed"}
	rapid.Check(t, func(t *rapid.T) {
		var heard []akriv0.NodeStatus
		for _, name := range []string{"a", "b", "c"} {
			handlers := active
			if rapid.Bool().Draw(t, "without") {
				handlers = nil
			}
			heard = append(heard, node(name, handlers, rapid.SliceOfN(rapid.SampledFrom(reasons), 0, 2).Draw(t, "problems")...))
		}
		configuration := &akriv0.Configuration{}
		write := func(now time.Time, nodes ...akriv0.NodeStatus) {
			configuration.Status = status.Desired(status.Input{Configuration: configuration, Heard: complete(nodes...), Gone: never, Now: now})
		}
		for _, i := range rapid.Permutation([]int{0, 1, 2}).Draw(t, "order") {
			write(early, heard[i])
		}
		want := desired(heard...)
		require.Equal(t, want, configuration.Status)
		write(early.Add(time.Hour), heard...)
		require.Equal(t, want, configuration.Status)
	})
}

func TestNoAnswerYetIsNoAnswer(t *testing.T) {
	configuration := &akriv0.Configuration{}
	configuration.Generation = 1
	hear := func(r status.Report) *metav1.Condition {
		configuration.Status = status.Desired(status.Input{Configuration: configuration, Heard: []status.Report{r}, Gone: never, Now: early})
		return meta.FindStatusCondition(configuration.Status.Conditions, akriv0.ConditionReady)
	}
	waiting, bad := node("a", active), node("a", active, "InvalidDetails")
	waiting.Devices = 0

	ready := hear(status.Report{NodeStatus: waiting, Generation: 1})
	require.Equal(t, metav1.ConditionUnknown, ready.Status)
	require.Equal(t, akriv0.ReasonNoReport, ready.Reason)
	require.Zero(t, ready.ObservedGeneration)
	require.Zero(t, configuration.Status.ObservedGeneration)

	ready = hear(status.Report{NodeStatus: bad, Generation: 1, Complete: true})
	require.Equal(t, metav1.ConditionFalse, ready.Status)
	require.EqualValues(t, 1, ready.ObservedGeneration)
	before := configuration.Status.DeepCopy()
	hear(status.Report{NodeStatus: waiting, Generation: 1})
	require.Equal(t, *before, configuration.Status, "a node that starts again changes nothing")

	configuration.Generation = 2
	ready = hear(status.Report{NodeStatus: node("a", active), Generation: 1, Complete: true})
	require.EqualValues(t, 1, ready.ObservedGeneration, "an answer to the former spec says nothing of this one")
	hear(status.Report{NodeStatus: waiting, Generation: 2})
	require.EqualValues(t, 1, configuration.Status.ObservedGeneration)
	ready = hear(status.Report{NodeStatus: node("a", active), Generation: 2, Complete: true})
	require.EqualValues(t, 2, ready.ObservedGeneration)
	require.Equal(t, metav1.ConditionTrue, ready.Status)

	offline := node("a", active, "HandlerOffline")
	offline.Devices = 0
	hear(status.Report{NodeStatus: offline, Generation: 2})
	require.EqualValues(t, 1, configuration.Status.Nodes[0].Devices, "an incomplete list takes no device away")
}
