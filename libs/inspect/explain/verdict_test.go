package explain_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/fixture"
)

// BenchmarkVerdicts judges 1,000 devices with a broker each, whose slots are held. The brokers run,
// or wait for a slot.
func BenchmarkVerdicts(b *testing.B) {
	for _, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodPending} {
		b.Run(string(phase), func(b *testing.B) {
			s := thousandDevices(b, phase)
			for b.Loop() {
				fresh := *s // without the index
				explain.Verdicts(&fresh)
			}
		})
	}
}

func thousandDevices(tb testing.TB, phase corev1.PodPhase) *explain.Snapshot {
	tb.Helper()
	s := fixture.Load(tb, "testdata/healthy.yaml")
	broker := *explain.Find(s.Pods, "default", "node-a-camera-8120fe-pod")
	for i := range 1000 {
		instance := *s.Instances[0].DeepCopy()
		instance.Name = fmt.Sprintf("camera-%06x", i)
		instance.Spec.DeviceUsage = map[string]string{akriv0.SlotName(instance.Name, 0): "node-a", akriv0.SlotName(instance.Name, 1): "node-b"}

		pod := *broker.DeepCopy()
		pod.Name = instance.Name + "-pod"
		pod.OwnerReferences[0].Name = instance.Name
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{
			corev1.ResourceName(akriv0.ResourceName(instance.Name)): resource.MustParse("1"),
		}
		if phase == corev1.PodPending {
			pod.Spec.NodeName, pod.Status = "", unschedulable
		}
		s.Instances, s.Pods = append(s.Instances, instance), append(s.Pods, pod)
	}
	return s
}

var unschedulable = corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{
	Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/2 nodes are available: 2 Insufficient resource",
}}}
