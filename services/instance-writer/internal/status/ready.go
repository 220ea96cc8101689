package status

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// setReady sets the conditions Ready and Stalled. Tools such as Helm and Flux wait for Ready, and
// roll back a release without it, so it depends on nothing that a site may lack: devices, nodes,
// handlers and brokers. Stalled means that only a user can change that.
func (in Input) setReady(conditions *[]metav1.Condition) {
	ready := asExpected(akriv0.ConditionReady, "accepted; DevicesWorking and BrokersWorking state what works")
	valid := meta.FindStatusCondition(*conditions, akriv0.ConditionSpecValid)
	switch {
	case in.NameTaken:
		ready.Status, ready.Reason = metav1.ConditionFalse, akriv0.ReasonNameTaken
		ready.Message = "the name belongs to another namespace or Configuration; see DevicesAccepted"
	case valid != nil && valid.Status == metav1.ConditionFalse:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, valid.Reason, "the spec is invalid; see SpecValid"
	}
	in.set(conditions, ready, in.Configuration.Generation)

	if ready.Status == metav1.ConditionTrue {
		meta.RemoveStatusCondition(conditions, akriv0.ConditionStalled)
		return
	}
	stalled := ready
	stalled.Type, stalled.Status = akriv0.ConditionStalled, metav1.ConditionTrue
	in.set(conditions, stalled, in.Configuration.Generation)
}

// SameSpecValid reports whether SpecValid, which broker-controller writes, is the same in both
// lists.
func SameSpecValid(a, b []metav1.Condition) bool {
	first, second := meta.FindStatusCondition(a, akriv0.ConditionSpecValid), meta.FindStatusCondition(b, akriv0.ConditionSpecValid)
	return (first == nil) == (second == nil) && (first == nil || *first == *second)
}
