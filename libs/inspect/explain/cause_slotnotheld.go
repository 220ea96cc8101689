package explain

import "fmt"

// SlotNotHeld means that a Pod runs and its node holds no slot.
const SlotNotHeld CauseID = "SlotNotHeld"

func init() { register(rule{SlotNotHeld, LinkSlot, 3, slotNotHeld}) }

func slotNotHeld(t target, report func(Cause)) {
	if t.unheld == "" {
		return
	}
	report(Cause{
		Message: fmt.Sprintf("%s holds no slot of %s, although the Pod runs", t.pod.Spec.NodeName, t.unheld),
		Remedies: []Remedy{
			remedy("Compare the slots with the Pods. The node takes a slot back if it is free.", "kubectl akri slots --all-namespaces"),
			deletePod("Otherwise delete the Pod: another one may use the device, too.", t.pod),
		},
	})
}
