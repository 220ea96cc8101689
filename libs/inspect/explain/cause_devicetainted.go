package explain

import (
	"fmt"
	"slices"
)

// DeviceTainted means that all devices that match a request of a ResourceClaim have a taint that it
// does not tolerate.
const DeviceTainted CauseID = "DeviceTainted"

func init() { register(rule{DeviceTainted, LinkScheduled, 4, deviceTainted}) }

func deviceTainted(t target, report func(Cause)) {
	for _, r := range t.unallocated() {
		if len(r.selected) < r.count() || len(r.tolerated) >= r.count() {
			continue
		}
		c := r.selected[slices.IndexFunc(r.selected, func(c candidate) bool { return taint(&r, c.device) != "" })]
		report(Cause{
			Subject: subject("Instance", c.instance.Namespace, c.instance.Name),
			Message: fmt.Sprintf("%s matches the %s and has the taint %s, which the request does not tolerate", c.device.Name, &r, taint(&r, c.device)),
			Remedies: []Remedy{
				remedy("Read whether the device is removed, which akri.sh/lost means.", "kubectl akri explain instance %s --namespace %s",
					c.instance.Name, c.instance.Namespace),
				r.claim.edit(t.pod, "Or tolerate the taint in the request."),
			},
		})
	}
}
