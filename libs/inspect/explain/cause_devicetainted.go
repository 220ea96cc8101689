package explain

import (
	"fmt"
	"slices"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// DeviceTainted means that all devices that match a request of a ResourceClaim have a taint that it
// does not tolerate.
const DeviceTainted CauseID = "DeviceTainted"

func init() { register(rule{DeviceTainted, LinkScheduled, 3, deviceTainted}) }

func deviceTainted(t target) []Cause {
	var causes []Cause
	for _, r := range t.unallocated() {
		if len(r.selected) < r.count() || len(r.tolerated) >= r.count() {
			continue
		}
		c := r.selected[slices.IndexFunc(r.selected, func(c candidate) bool { return taint(&r, c.device) != "" })]
		causes = append(causes, Cause{
			Subject: &akriv0.Subject{Kind: "Instance", Namespace: c.instance.Namespace, Name: c.instance.Name},
			Message: fmt.Sprintf("%s matches the %s and has the taint %s, which the request does not tolerate", c.device.Name, &r, taint(&r, c.device)),
			Remedies: []Remedy{
				{Text: "Read whether the device is removed, which akri.sh/lost means.", Command: fmt.Sprintf("kubectl akri explain instance %s --namespace %s",
					c.instance.Name, c.instance.Namespace)},
				r.claim.edit(t.pod, "Or tolerate the taint in the request."),
			},
		})
	}
	return causes
}
