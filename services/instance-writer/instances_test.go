package instancewriter_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/kubetest"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

const grace = 5 * time.Minute

func TestSharedDevice(t *testing.T) {
	kubetest.NoLeaks(t)
	f := newFixture(t, 2, 2)
	streams := f.reportShared("foo", start(t, grace), start(t, grace))
	name := f.instanceName("foo")
	got := f.get(name)
	require.Equal(t, f.nodes, got.Spec.Nodes)
	require.Equal(t, akriv0.InstanceSpec{
		ConfigurationName: f.configuration.Name, CDIName: akriv0.CDIName(f.configuration.Name, akriv0.InstanceDigest(name)),
		Capacity: 2, Shared: true, Nodes: f.nodes, BrokerProperties: map[string]string{"ID": "foo"},
		DeviceUsage: map[string]string{name + "-0": "", name + "-1": ""},
	}, got.Spec)
	require.Equal(t, f.configuration.UID, got.OwnerReferences[0].UID)
	require.Empty(t, got.Finalizers)
	require.Equal(t, map[string]string{akriv0.ConfigurationLabel: f.configuration.Name}, got.Labels)

	incomplete := f.newReport(f.nodes[0])
	incomplete.Complete = false
	streams[0].send(incomplete)
	require.Equal(t, f.nodes, f.get(name).Spec.Nodes, "an incomplete report removes nothing")
	streams[0].send(f.newReport(f.nodes[0]))
	require.Equal(t, f.nodes[1:], f.get(name).Spec.Nodes)
	streams[1].send(f.newReport(f.nodes[1]))
	require.True(t, f.deleted(name))
}

func TestLocalDevices(t *testing.T) {
	f := newFixture(t, 1, 2)
	r := start(t, grace)
	for _, node := range f.nodes {
		device := f.device(node, "/dev/video0", false)
		openReports(t, r).send(f.newReport(node, device))
		require.Equal(t, []string{node}, f.get(device.GetInstance()).Spec.Nodes)
	}
}

func TestCapacityFollowsTheConfiguration(t *testing.T) {
	f := newFixture(t, 1, 1)
	f.reportShared("foo", start(t, grace))
	f.edit(func(spec *akriv0.ConfigurationSpec) { spec.Capacity = new(int32(3)) })
	f.eventually("capacity", func() bool {
		got := f.get(f.instanceName("foo")).Spec
		return got.Capacity == 3 && len(got.DeviceUsage) == 3
	})
}

// An Instance of upstream Akri gets the label, with one write, when the service starts.
func TestAdoptionAddsTheLabel(t *testing.T) {
	f := newFixture(t, 1, 1)
	old := start(t, grace)
	f.reportShared("foo", old)
	old.kill()
	instance := f.instanceName("foo")
	kubetest.Edit(t, f.instances.In(namespace), instance, func(i *akriv0.Instance) { i.Labels = map[string]string{"room": "lab"} })
	upgraded := start(t, grace)
	want := map[string]string{"room": "lab", akriv0.ConfigurationLabel: f.configuration.Name}
	f.eventually("label", func() bool { return maps.Equal(f.get(instance).Labels, want) })
	labelled := f.get(instance)
	settle(t, upgraded)
	require.Equal(t, labelled, f.get(instance), "one write")
}

func TestDeletedConfiguration(t *testing.T) {
	f := newFixture(t, 1, 1)
	streams := f.reportShared("foo", start(t, grace))
	require.NoError(t, f.configurations.In(namespace).Delete(t.Context(), f.configuration.Name, metav1.DeleteOptions{}))
	f.eventually("Instance is deleted", func() bool { return f.deleted(f.instanceName("foo")) })
	require.Empty(t, streams[0].send(f.newReport(f.nodes[0], f.device("", "foo", true))))
	require.True(t, f.deleted(f.instanceName("foo")), "a report on a deleted Configuration is ignored")
}

func TestDeletedInstanceIsCreatedAgain(t *testing.T) {
	f := newFixture(t, 1, 1)
	f.reportShared("foo", start(t, grace))
	before := f.get(f.instanceName("foo"))
	require.NoError(t, f.instances.In(namespace).Delete(t.Context(), before.Name, metav1.DeleteOptions{}))
	f.eventually("Instance is created again", func() bool { return !f.deleted(before.Name) && f.get(before.Name).UID != before.UID })
}

// A node that is deleted, or not ready for longer than the grace period, is removed from Instances.
// It is added again when it is ready.
func TestUnavailableNode(t *testing.T) {
	f := newFixture(t, 1, 3)
	r := start(t, time.Second)
	f.reportShared("foo", r)
	name := f.instanceName("foo")
	require.NoError(t, reserve(r, f.nodes[1], claim(name, 0)))

	require.NoError(t, f.nodeClient.In("").Delete(t.Context(), f.nodes[0], metav1.DeleteOptions{}))
	f.eventually("node deleted", func() bool { return len(f.get(name).Spec.Nodes) == 2 })
	require.Equal(t, f.nodes[1], f.get(name).Spec.DeviceUsage[name+"-0"])
	f.setReady(f.nodes[1], corev1.ConditionUnknown)
	f.eventually("node not ready", func() bool { return len(f.get(name).Spec.Nodes) == 1 })
	require.Empty(t, f.get(name).Spec.DeviceUsage[name+"-0"], "an unavailable node loses its slots")
	f.setReady(f.nodes[1], corev1.ConditionTrue)
	f.eventually("node ready", func() bool { return len(f.get(name).Spec.Nodes) == 2 })
	f.eventually("status without the node", func() bool { return len(f.status().Nodes) == 2 })
}

// A node keeps its slots for the grace period although its transition time is an hour ago.
func TestGraceOfNodeWithWrongClock(t *testing.T) {
	f := newFixture(t, 1, 2)
	r := start(t, 2*time.Second)
	f.reportShared("foo", r)
	name := f.instanceName("foo")
	require.NoError(t, reserve(r, f.nodes[1], claim(name, 0)))
	began := time.Now()
	f.setReadyAt(f.nodes[1], corev1.ConditionUnknown, began.Add(-time.Hour))
	f.eventually("node not ready", func() bool { return len(f.get(name).Spec.Nodes) == 1 })
	require.GreaterOrEqual(t, time.Since(began), 2*time.Second)

	restarted := start(t, grace)
	openReports(t, restarted).send(f.newReport(f.nodes[1], f.device("", "foo", true)))
	require.Equal(t, f.nodes[:1], f.get(name).Spec.Nodes, "the grace period that begins again adds no node")
}

func (f *fixture) setReady(name string, ready corev1.ConditionStatus) {
	f.setReadyAt(name, ready, time.Now())
}

func (f *fixture) setReadyAt(name string, ready corev1.ConditionStatus, transition time.Time) {
	kubetest.EditStatus(f, f.nodeClient.In(""), name, func(node *corev1.Node) {
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.NewTime(transition)}}
	})
}

func TestInvalidDevicesAreRefused(t *testing.T) {
	f := newFixture(t, 1, 1)
	node := f.nodes[0]
	wrong := f.device(node, "x", true)
	wrong.Instance = "other-abcdef"
	s := openReports(t, start(t, grace))
	refusals := s.send(f.newReport(node, f.device(node, "fine", true), &discoveryv1.Device{Instance: "i"}, wrong))
	reasons := map[string]string{}
	for _, refusal := range refusals {
		reasons[refusal.GetDeviceId()] = refusal.GetReason()
	}
	require.Equal(t, map[string]string{"": akriv0.ReasonInvalidDevice, "x": akriv0.ReasonInvalidDevice}, reasons)
	require.Equal(t, []string{node}, f.get(f.instanceName("fine")).Spec.Nodes)
	f.eventually("problem in status", func() bool {
		condition := meta.FindStatusCondition(f.status().Conditions, akriv0.ConditionDevicesAccepted)
		return condition != nil && condition.Status == metav1.ConditionFalse && strings.Contains(condition.Message, node+": ")
	})
}

func TestTerminatingNamespace(t *testing.T) {
	f := newFixture(t, 1, 1)
	namespaces, err := kube.NewClient[corev1.Namespace, corev1.NamespaceList](
		api.Config(), corev1.SchemeGroupVersion.WithResource("namespaces"))
	require.NoError(t, err)
	terminating, err := namespaces.In("").Create(t.Context(),
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "terminating-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	other, err := f.configurations.In(terminating.Name).Create(t.Context(), &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: terminating.Name}, Spec: f.configuration.Spec,
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	// The Namespace stays in Terminating, because no controller deletes its objects.
	require.NoError(t, namespaces.In("").Delete(t.Context(), terminating.Name, metav1.DeleteOptions{}))

	s := openReports(t, start(t, grace))
	report := f.newReport(f.nodes[0])
	report.Namespace, report.Configuration, report.ConfigurationUid = terminating.Name, other.Name, string(other.UID)
	report.Devices = []*discoveryv1.Device{{Instance: akriv0.InstanceName("other", akriv0.Digest("foo", "", true)), Id: "foo", Shared: true}}
	refusals := s.send(report)
	require.Len(t, refusals, 1)
	require.Equal(t, "NotPermitted", refusals[0].GetReason())
	require.Contains(t, refusals[0].GetMessage(), "is being terminated")
	require.Empty(t, s.send(f.newReport(f.nodes[0], f.device("", "foo", true))))
}

func TestProblemInStatusAndEvent(t *testing.T) {
	f := newFixture(t, 1, 1)
	s := openReports(t, start(t, grace))
	report := f.newReport(f.nodes[0])
	report.Handlers = nil
	report.Problems = []*instancev1.Problem{{Reason: akriv0.ReasonHandlerNotRegistered, Message: `no Discovery Handler named "x"`}}
	s.send(report)
	registered := func() metav1.Condition {
		for _, condition := range f.status().Conditions {
			if condition.Type == akriv0.ConditionHandlerRegistered {
				return condition
			}
		}
		return metav1.Condition{}
	}
	f.eventually("not registered", func() bool { return registered().Status == metav1.ConditionFalse })
	require.Equal(t, akriv0.ReasonHandlerNotRegistered, registered().Reason)
	require.Equal(t, f.nodes[0]+`: no Discovery Handler named "x"`, registered().Message)
	f.eventually("event", func() bool { return len(f.events(akriv0.ReasonHandlerNotRegistered)) == 1 })
	s.send(f.newReport(f.nodes[0], f.device("", "foo", true)))
	f.eventually("registered", func() bool { return registered().Status == metav1.ConditionTrue && f.status().Devices == 1 })
	f.eventually("event", func() bool { return len(f.events(akriv0.ReasonAsExpected)) == 1 })
}

// Ready follows SpecValid, which broker-controller writes, and not its other conditions. All of
// them stay as they are.
func TestReadyFollowsSpecValid(t *testing.T) {
	f := newFixture(t, 1, 1)
	replicas := []*replica{start(t, grace), start(t, grace)}
	f.reportShared("foo", replicas...)
	ready := func(status metav1.ConditionStatus, reason string) func() bool {
		return func() bool {
			condition := meta.FindStatusCondition(f.status().Conditions, akriv0.ConditionReady)
			return condition != nil && condition.Status == status && condition.Reason == reason
		}
	}
	f.eventually("ready", ready(metav1.ConditionTrue, akriv0.ReasonAsExpected))
	for range 3 { // replicas correct a status once in 30 s; this is no correction
		f.applyCondition(akriv0.ConditionSpecValid, metav1.ConditionFalse, akriv0.ReasonInvalidSpec)
		f.eventually("not ready", ready(metav1.ConditionFalse, akriv0.ReasonInvalidSpec))
		f.applyCondition(akriv0.ConditionSpecValid, metav1.ConditionTrue, akriv0.ReasonAsExpected)
		f.eventually("ready", ready(metav1.ConditionTrue, akriv0.ReasonAsExpected))
	}
	f.applyCondition(akriv0.ConditionBrokersRunning, metav1.ConditionFalse, "ErrImagePull")
	settle(t, replicas...)
	require.True(t, ready(metav1.ConditionTrue, akriv0.ReasonAsExpected)())
	require.Equal(t, "ErrImagePull", meta.FindStatusCondition(f.status().Conditions, akriv0.ConditionBrokersRunning).Reason)
}

// applyCondition sets a condition as broker-controller does.
func (f *fixture) applyCondition(kind string, status metav1.ConditionStatus, reason string) {
	f.Helper()
	patch := fmt.Sprintf(`{"apiVersion":"akri.sh/v0","kind":"Configuration","metadata":{"name":%q},"status":{"conditions":[
		{"type":%q,"status":%q,"reason":%q,"message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, f.configuration.Name, kind, status, reason)
	force := true
	_, err := f.configurations.In(namespace).Patch(f.Context(), f.configuration.Name, types.ApplyPatchType, []byte(patch),
		metav1.PatchOptions{FieldManager: "akri-broker-controller", Force: &force}, "status")
	require.NoError(f, err)
}

func TestMalformedSlot(t *testing.T) {
	f := newFixture(t, 2, 1)
	r := start(t, grace)
	f.reportShared("foo", r)
	name := f.instanceName("foo")
	setHolder := func(holder string) {
		kubetest.Edit(t, f.instances.In(namespace), name, func(i *akriv0.Instance) { i.Spec.DeviceUsage[name+"-0"] = holder })
	}
	setHolder("C:by-hand")
	readable := func() metav1.Condition {
		return *meta.FindStatusCondition(f.status().Conditions, akriv0.ConditionSlotsReadable)
	}
	f.eventually("condition is False", func() bool { return readable().Status == metav1.ConditionFalse })
	require.Equal(t, akriv0.ReasonSlotMalformed, readable().Reason)
	require.Contains(t, readable().Message, name+"-0")
	require.Contains(t, readable().Message, "C:by-hand")
	require.ErrorContains(t, reserve(r, f.nodes[0], claim(name, 0)), "malformed")
	require.NoError(t, reserve(r, f.nodes[0], claim(name, 1)))
	require.Equal(t, map[string]string{name + "-0": "C:by-hand", name + "-1": f.nodes[0]}, f.get(name).Spec.DeviceUsage)

	setHolder("")
	f.eventually("condition is True", func() bool { return readable().Status == metav1.ConditionTrue })
	require.NoError(t, reserve(r, f.nodes[0], claim(name, 0)))
}
