package explain

import (
	"maps"
	"slices"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// SlotMalformed means that a value of deviceUsage was edited by hand.
const SlotMalformed CauseID = "SlotMalformed"

func init() {
	register(
		rule{SlotMalformed, LinkInstances, 2, whenFalse(akriv0.ConditionSlotsReadable, "", freeReported)},
		rule{SlotMalformed, LinkSlots, 0, slotMalformed},
	)
}

// slotMalformed examines one Instance.
func slotMalformed(t target, report func(Cause)) {
	slots := slotsOf(t.instances...)
	if i := slices.IndexFunc(slots, func(slot Slot) bool { return slot.Problem != "" }); i >= 0 {
		report(Cause{
			Subject: subject("Slot", slots[i].Namespace, slots[i].Slot),
			Message: slots[i].Problem, Remedies: freeMalformed(t),
		})
	}
}

// freeReported returns the remedies for the slots that the condition names. It can be older than
// the Instances.
func freeReported(t target) []Remedy {
	if remedies := freeMalformed(t); len(remedies) > 0 {
		return remedies
	}
	return []Remedy{describeConfiguration("No slot has such a value now. Check that SlotsReadable becomes True.", t.configuration)}
}

// freeMalformed returns the commands that make malformed slots free. The node that uses one takes
// it back.
func freeMalformed(t target) []Remedy {
	var remedies []Remedy
	for _, instance := range t.instances {
		for _, slot := range slices.Sorted(maps.Keys(instance.Spec.DeviceUsage)) {
			if _, err := akriv0.ParseSlotHolder(instance.Spec.DeviceUsage[slot]); err != nil {
				remedies = append(remedies, remedy("Make the slot free. If a Pod uses it, its node takes it back.",
					`kubectl patch instance.akri.sh %s --namespace %s --type=merge --patch '{"spec":{"deviceUsage":{%q:""}}}'`,
					instance.Name, instance.Namespace, slot))
			}
		}
	}
	return remedies
}
