package status

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// BrokerConditions are the conditions that broker-controller writes.
var BrokerConditions = []string{akriv0.ConditionSpecValid, akriv0.ConditionBrokersRunning}

// withBrokers makes Ready False if a condition of broker-controller is. A condition that is Unknown
// does not affect Ready, because brokers start whenever a device appears.
func withBrokers(ready metav1.Condition, current []metav1.Condition) metav1.Condition {
	for _, name := range BrokerConditions {
		condition := meta.FindStatusCondition(current, name)
		if condition != nil && condition.Status == metav1.ConditionFalse && ready.Status != metav1.ConditionFalse {
			ready.Status, ready.Reason, ready.Message = condition.Status, condition.Reason, condition.Message
		}
	}
	return ready
}

// SameBrokers reports whether the conditions of broker-controller are the same in both lists.
func SameBrokers(a, b []metav1.Condition) bool {
	return !slices.ContainsFunc(BrokerConditions, func(name string) bool {
		first, second := meta.FindStatusCondition(a, name), meta.FindStatusCondition(b, name)
		return (first == nil) != (second == nil) || first != nil && *first != *second
	})
}
