package instancewriter_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

const grace = 5 * time.Minute

func TestASharedDeviceIsOneInstanceAndGoesWithItsLastNode(t *testing.T) {
	noLeaks(t)
	w := newWorld(t, 2, 2)
	streams := w.see("foo", start(t, grace), start(t, grace))
	name := w.shared("foo")
	got := w.get(name)
	require.Equal(t, w.nodes, got.Spec.Nodes)
	require.Equal(t, akriv0.InstanceSpec{
		ConfigurationName: w.configuration.Name, CDIName: akriv0.CDIName(w.configuration.Name, akriv0.InstanceDigest(name)),
		Capacity: 2, Shared: true, Nodes: w.nodes, BrokerProperties: map[string]string{"ID": "foo"},
		DeviceUsage: map[string]string{name + "-0": "", name + "-1": ""},
	}, got.Spec)
	require.Equal(t, w.configuration.UID, got.OwnerReferences[0].UID)
	require.Empty(t, got.Finalizers)

	incomplete := w.report(w.nodes[0])
	incomplete.Complete = false
	streams[0].tell(incomplete)
	require.Equal(t, w.nodes, w.get(name).Spec.Nodes, "no list yet removes nothing")
	streams[0].tell(w.report(w.nodes[0]))
	require.Equal(t, w.nodes[1:], w.get(name).Spec.Nodes)
	streams[1].tell(w.report(w.nodes[1]))
	require.True(t, w.gone(name))
}

func TestLocalDevicesOfTwoNodesAreTwoInstances(t *testing.T) {
	w := newWorld(t, 1, 2)
	r := start(t, grace)
	for _, node := range w.nodes {
		device := w.device(node, "/dev/video0", false)
		open(t, r).tell(w.report(node, device))
		require.Equal(t, []string{node}, w.get(device.GetInstance()).Spec.Nodes)
	}
}

func TestCapacityFollowsTheConfiguration(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.see("foo", start(t, grace))
	three := int32(3)
	w.eventually("edit", func() bool {
		latest, err := w.configurations.In(space).Get(t.Context(), w.configuration.Name, metav1.GetOptions{})
		require.NoError(t, err)
		latest.Spec.Capacity = &three
		_, err = w.configurations.In(space).Update(t.Context(), latest, metav1.UpdateOptions{})
		return err == nil
	})
	w.eventually("capacity", func() bool {
		got := w.get(w.shared("foo")).Spec
		return got.Capacity == 3 && len(got.DeviceUsage) == 3
	})
}

func TestADeletedConfigurationTakesItsInstances(t *testing.T) {
	w := newWorld(t, 1, 1)
	streams := w.see("foo", start(t, grace))
	require.NoError(t, w.configurations.In(space).Delete(t.Context(), w.configuration.Name, metav1.DeleteOptions{}))
	w.eventually("Instance goes", func() bool { return w.gone(w.shared("foo")) })
	require.Empty(t, streams[0].tell(w.report(w.nodes[0], w.device("", "foo", true))))
	require.True(t, w.gone(w.shared("foo")), "a report on a Configuration that is gone is void")
}

func TestAnInstanceThatIsDeletedByHandComesBack(t *testing.T) {
	w := newWorld(t, 1, 1)
	w.see("foo", start(t, grace))
	before := w.get(w.shared("foo"))
	require.NoError(t, w.instances.In(space).Delete(t.Context(), before.Name, metav1.DeleteOptions{}))
	w.eventually("Instance returns", func() bool { return !w.gone(before.Name) && w.get(before.Name).UID != before.UID })
}

func TestANodeThatIsGoneOrNotReadyTooLongLeavesAndComesBackWhenReady(t *testing.T) {
	w := newWorld(t, 1, 3)
	r := start(t, time.Second)
	w.see("foo", r)
	name := w.shared("foo")
	_, err := r.client.ReserveSlots(t.Context(), &instancev1.ReserveSlotsRequest{Node: w.nodes[1], Claims: []*instancev1.SlotClaim{claim(name, 0)}})
	require.NoError(t, err)

	require.NoError(t, w.nodeClient.In("").Delete(t.Context(), w.nodes[0], metav1.DeleteOptions{}))
	w.eventually("node gone", func() bool { return len(w.get(name).Spec.Nodes) == 2 })
	require.Equal(t, w.nodes[1], w.get(name).Spec.DeviceUsage[name+"-0"])
	w.ready(w.nodes[1], corev1.ConditionUnknown)
	w.eventually("node out", func() bool { return len(w.get(name).Spec.Nodes) == 1 })
	require.Empty(t, w.get(name).Spec.DeviceUsage[name+"-0"], "a node that is out loses its slots")
	w.ready(w.nodes[1], corev1.ConditionTrue)
	w.eventually("node back", func() bool { return len(w.get(name).Spec.Nodes) == 2 })
	w.eventually("status forgets the node", func() bool { return len(w.status().Nodes) == 2 })
}

func (w *world) ready(name string, ready corev1.ConditionStatus) {
	w.eventually("node status", func() bool {
		node, err := w.nodeClient.In("").Get(w.Context(), name, metav1.GetOptions{})
		require.NoError(w, err)
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastTransitionTime: metav1.Now()}}
		_, err = w.nodeClient.In("").UpdateStatus(w.Context(), node, metav1.UpdateOptions{})
		return err == nil
	})
}

// collision finds two ids with one digest.
func collision(w *world) (a, b string) {
	ids := map[string]string{}
	for i := 0; ; i++ {
		id := fmt.Sprintf("id-%d", i)
		name := w.shared(id)
		if other, ok := ids[name]; ok {
			return other, id
		}
		ids[name] = id
	}
}

func TestDevicesThatCannotBeInstancesAreRefusedAndTheOthersAreNot(t *testing.T) {
	w := newWorld(t, 1, 2)
	r := start(t, grace)
	first, second := collision(w)
	node := w.nodes[1]
	open(t, r).tell(w.report(w.nodes[0], w.device("", first, true)))
	before := w.get(w.shared(first))

	wrong := w.device(node, "x", true)
	wrong.Instance = "other-abcdef"
	s := open(t, r)
	refusals := s.tell(w.report(node, w.device(node, second, true), w.device(node, "fine", true), &instancev1.Device{Instance: "i"}, wrong))
	reasons := map[string]string{}
	for _, refusal := range refusals {
		reasons[refusal.GetDeviceId()] = refusal.GetReason()
	}
	require.Equal(t, map[string]string{second: akriv0.ReasonDigestCollision, "": akriv0.ReasonInvalidDevice, "x": akriv0.ReasonInvalidDevice}, reasons)
	require.Equal(t, before, w.get(w.shared(first)))
	require.Equal(t, []string{node}, w.get(w.shared("fine")).Spec.Nodes)
	w.eventually("status names the collision", func() bool {
		for _, condition := range w.status().Conditions {
			if condition.Type == akriv0.ConditionDevicesAccepted && condition.Status == metav1.ConditionFalse {
				require.Contains(t, condition.Message, node+": ")
				require.Contains(t, condition.Message, fmt.Sprintf("device id %q has the same digest as %q", second, first))
				return true
			}
		}
		return false
	})
}

func TestANamespaceThatEndsHoldsUpNobodyElse(t *testing.T) {
	w := newWorld(t, 1, 1)
	namespaces, err := kube.NewClient(api.Config(), corev1.SchemeGroupVersion.WithResource("namespaces"), corev1.AddToScheme,
		func() *corev1.Namespace { return &corev1.Namespace{} }, func() *corev1.NamespaceList { return &corev1.NamespaceList{} })
	require.NoError(t, err)
	ending, err := namespaces.In("").Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "ending-"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	other, err := w.configurations.In(ending.Name).Create(t.Context(), &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: "other", Namespace: ending.Name}, Spec: w.configuration.Spec,
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, namespaces.In("").Delete(t.Context(), ending.Name, metav1.DeleteOptions{})) // nobody here empties it

	s := open(t, start(t, grace))
	report := w.report(w.nodes[0])
	report.Namespace, report.Configuration, report.ConfigurationUid = ending.Name, other.Name, string(other.UID)
	report.Devices = []*instancev1.Device{{Instance: akriv0.InstanceName("other", akriv0.Digest("foo", "", true)), Id: "foo", Shared: true}}
	refusals := s.tell(report)
	require.Len(t, refusals, 1)
	require.Equal(t, "NotPermitted", refusals[0].GetReason())
	require.Contains(t, refusals[0].GetMessage(), "is being terminated")
	require.Empty(t, s.tell(w.report(w.nodes[0], w.device("", "foo", true))))
}

func TestStatusSaysWhatIsWrongAndAnEventTellsIt(t *testing.T) {
	w := newWorld(t, 1, 1)
	s := open(t, start(t, grace))
	report := w.report(w.nodes[0])
	report.Handlers, report.Problems = nil, []*instancev1.Problem{{Reason: akriv0.ReasonHandlerNotRegistered, Message: `no Discovery Handler named "x"`}}
	s.tell(report)
	ready := func() metav1.Condition {
		for _, condition := range w.status().Conditions {
			if condition.Type == akriv0.ConditionReady {
				return condition
			}
		}
		return metav1.Condition{}
	}
	w.eventually("not ready", func() bool { return ready().Status == metav1.ConditionFalse })
	require.Equal(t, akriv0.ReasonHandlerNotRegistered, ready().Reason)
	require.Equal(t, w.nodes[0]+`: no Discovery Handler named "x"`, ready().Message)
	w.eventually("event", func() bool { return w.events(corev1.EventTypeWarning) == 1 })
	s.tell(w.report(w.nodes[0], w.device("", "foo", true)))
	w.eventually("ready", func() bool { return ready().Status == metav1.ConditionTrue && w.status().Devices == 1 })
	w.eventually("event", func() bool { return w.events(corev1.EventTypeNormal) == 1 })
}

func TestASlotWhoseValueCannotBeReadIsKeptToldAndNotGiven(t *testing.T) {
	w := newWorld(t, 2, 1)
	r := start(t, grace)
	w.see("foo", r)
	name := w.shared("foo")
	instance := w.get(name)
	instance.Spec.DeviceUsage[name+"-0"] = "C:by-hand"
	_, err := w.instances.In(space).Update(t.Context(), instance, metav1.UpdateOptions{})
	require.NoError(t, err)
	readable := func() metav1.Condition {
		return *meta.FindStatusCondition(w.status().Conditions, akriv0.ConditionSlotsReadable)
	}
	w.eventually("told", func() bool { return readable().Status == metav1.ConditionFalse })
	require.Equal(t, akriv0.ReasonSlotMalformed, readable().Reason)
	require.Contains(t, readable().Message, name+"-0")
	require.Contains(t, readable().Message, "C:by-hand")
	require.ErrorContains(t, reserve(r, w.nodes[0], claim(name, 0)), "malformed")
	require.NoError(t, reserve(r, w.nodes[0], claim(name, 1)))
	require.Equal(t, map[string]string{name + "-0": "C:by-hand", name + "-1": w.nodes[0]}, w.get(name).Spec.DeviceUsage)

	instance = w.get(name)
	instance.Spec.DeviceUsage[name+"-0"] = ""
	_, err = w.instances.In(space).Update(t.Context(), instance, metav1.UpdateOptions{})
	require.NoError(t, err)
	w.eventually("told that it is well again", func() bool { return readable().Status == metav1.ConditionTrue })
	require.NoError(t, reserve(r, w.nodes[0], claim(name, 0)))
}
