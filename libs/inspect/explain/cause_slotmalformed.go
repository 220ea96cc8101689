package explain

import (
	"fmt"
	"maps"
	"slices"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// SlotMalformed means that a value of deviceUsage was edited by hand.
const SlotMalformed CauseID = "SlotMalformed"

func init() {
	register(
		rule{SlotMalformed, LinkInstances, 2, whenFalse(akriv0.ConditionSlotsReadable, "", func(t target) []Remedy { return freeMalformed(t.instances) })},
		rule{SlotMalformed, LinkSlots, 0, slotMalformed},
	)
}

// slotMalformed examines one Instance.
func slotMalformed(t target) []Cause {
	for _, slot := range t.Slots(t.instances...) {
		if slot.Problem != "" {
			return []Cause{{
				Subject: &akriv0.Subject{Kind: "Slot", Namespace: slot.Namespace, Name: slot.Slot},
				Message: slot.Problem, Remedies: freeMalformed(t.instances),
			}}
		}
	}
	return nil
}

// freeMalformed returns the commands that make malformed slots free. The node that uses one takes
// it back.
func freeMalformed(instances []*akriv0.Instance) []Remedy {
	var remedies []Remedy
	for _, instance := range instances {
		for _, slot := range slices.Sorted(maps.Keys(instance.Spec.DeviceUsage)) {
			if _, err := akriv0.ParseSlotHolder(instance.Spec.DeviceUsage[slot]); err == nil {
				continue
			}
			remedies = append(remedies, Remedy{
				Text: "Make the slot free. If a Pod uses it, its node takes it back.",
				Command: fmt.Sprintf(`kubectl patch instance.akri.sh %s --namespace %s --type=merge --patch '{"spec":{"deviceUsage":{%q:""}}}'`,
					instance.Name, instance.Namespace, slot),
			})
		}
	}
	return remedies
}
