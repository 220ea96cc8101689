package reconcile //nolint:testpackage // Events are not exported

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/instance-writer/internal/cluster"
)

func TestEventType(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, reason string) *metav1.Condition {
		return &metav1.Condition{Type: kind, Status: status, Reason: reason}
	}
	const details = akriv0.ConditionDetailsAccepted
	notFound := condition(details, metav1.ConditionFalse, akriv0.ReasonPropertyNotFound)
	forbidden := condition(details, metav1.ConditionFalse, akriv0.ReasonPropertyForbidden)
	accepted := condition(details, metav1.ConditionTrue, akriv0.ReasonAsExpected)
	unknown := condition(details, metav1.ConditionUnknown, akriv0.ReasonNoReport)
	for name, c := range map[string]struct {
		previous, current *metav1.Condition
		want              string
	}{
		"new problem":     {nil, notFound, "Warning"},
		"problem":         {accepted, notFound, "Warning"},
		"after unknown":   {unknown, notFound, "Warning"},
		"other reason":    {notFound, forbidden, "Warning"},
		"same reason":     {notFound, notFound, ""},
		"problem ended":   {forbidden, accepted, "Normal"},
		"never a problem": {unknown, accepted, ""},
		"unknown":         {accepted, unknown, ""},
		"first report":    {nil, accepted, ""},
		"Ready":           {nil, condition(akriv0.ConditionReady, metav1.ConditionFalse, "X"), ""},
		"DevicesFound":    {nil, condition(akriv0.ConditionDevicesFound, metav1.ConditionFalse, "X"), ""},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, eventType(c.previous, *c.current)) })
	}
}

func TestDeviceChanges(t *testing.T) {
	changes, cam := newDeviceChanges(), types.NamespacedName{Namespace: "ns", Name: "cam"}
	const one, two = "cam-1", "cam-2"
	changes.record(cam, two, []string{"a"}, nil)
	changes.record(cam, one, []string{"b", "a"}, nil)
	changes.record(cam, one, nil, []string{"c"})
	changes.record(types.NamespacedName{Namespace: "ns", Name: "other"}, "other-1", []string{"a"}, nil)
	added, removed := changes.take(cam)
	require.Equal(t, []place{{one, "a"}, {one, "b"}, {two, "a"}}, added)
	require.Equal(t, []place{{one, "c"}}, removed)

	changes.record(cam, one, nil, []string{"a"})
	changes.record(cam, one, []string{"a"}, nil)
	added, removed = changes.take(cam)
	require.Empty(t, append(added, removed...), "a device that flaps is no change")

	for i := range 2 * maxPendingDevices {
		changes.record(cam, one, []string{fmt.Sprint(i)}, nil)
	}
	added, _ = changes.take(cam)
	require.Len(t, added, maxPendingDevices)
	event := deviceEvent("X", added)
	require.Regexp(t, "^cam-1 on 0, .* and 990 more$", event.Message)
	require.Equal(t, []string{one}, event.Devices)
	require.Equal(t, cluster.Event{Type: "Normal", Reason: "X", Message: "cam-1 on a, cam-2 on a", Devices: []string{one, two}},
		deviceEvent("X", []place{{one, "a"}, {two, "a"}}))
}

func TestChangedNodes(t *testing.T) {
	instance := func(nodes ...string) *akriv0.Instance {
		return &akriv0.Instance{Spec: akriv0.InstanceSpec{Nodes: nodes}}
	}
	for name, c := range map[string]struct {
		before, after  *akriv0.Instance
		added, removed []string
	}{
		"created":   {nil, instance("a"), []string{"a"}, nil},
		"deleted":   {instance("a"), nil, nil, []string{"a"}},
		"unchanged": {instance("a", "b"), instance("a", "b"), nil, nil},
		"moved":     {instance("a", "b"), instance("b", "c"), []string{"c"}, []string{"a"}},
		"none":      {nil, nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			added, removed := changedNodes(c.before, c.after)
			require.ElementsMatch(t, c.added, added)
			require.ElementsMatch(t, c.removed, removed)
		})
	}
}
