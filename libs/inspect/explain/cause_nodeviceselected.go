package explain

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// NoDeviceSelected means that no device matches a request of a ResourceClaim.
const NoDeviceSelected CauseID = "NoDeviceSelected"

func init() { register(rule{NoDeviceSelected, LinkScheduled, 3, noDeviceSelected}) }

func noDeviceSelected(t target, report func(Cause)) {
	for _, r := range t.unallocated() {
		if len(r.selected) >= r.count() {
			continue
		}
		near := closest(t.Selectors, &r)
		cause := Cause{Message: fmt.Sprintf("no device of the DeviceClass %s matches the %s", r.DeviceClassName, &r), Evidence: linesOf(near)}
		switch {
		case len(r.selected) > 0:
			cause.Message = fmt.Sprintf("%s of the DeviceClass %s, of %d that are needed, for the %s",
				Plural(len(r.selected), "device"), r.DeviceClassName, r.Count, &r)
		case len(r.devices) == 0:
			cause.Message = fmt.Sprintf("the DeviceClass %s has no device, for the %s", r.DeviceClassName, &r)
		}

		cause.Remedies = []Remedy{
			remedy("List the devices that exist.", "kubectl akri devices --all-namespaces"),
			r.claim.edit(t.pod, "Correct the request."),
		}
		if slices.ContainsFunc(near, nearMiss.lacksAttribute) {
			cause.Remedies = append(cause.Remedies, remedy("Or publish the property as an attribute, if the device has it.",
				"kubectl annotate configuration.akri.sh CONFIGURATION --namespace NAMESPACE %s=PROPERTY", akriv0.PropertiesAnnotation))
		}
		report(cause)
	}
}

const maxClosest = 5

// nearMiss is a device of the class that the request does not select.
type nearMiss struct {
	name       string
	mismatches []mismatch
}

func (m nearMiss) lacksAttribute() bool {
	return slices.ContainsFunc(m.mismatches, func(m mismatch) bool { return errors.Is(m.err, ErrNoAttribute) })
}

// closest returns the devices of the class that match the most of the selectors.
func closest(selectors Selectors, r *request) []nearMiss {
	var found []nearMiss
	for _, c := range r.devices {
		if missed := mismatches(selectors, r, c); len(missed) > 0 {
			found = append(found, nearMiss{c.instance.Namespace + "/" + c.instance.Name, missed})
		}
	}
	slices.SortStableFunc(found, func(a, b nearMiss) int { return cmp.Compare(len(a.mismatches), len(b.mismatches)) })
	return found[:min(len(found), maxClosest)]
}

func linesOf(devices []nearMiss) (lines []string) {
	for _, device := range devices {
		var terms []string
		for _, mismatch := range device.mismatches {
			terms = append(terms, mismatch.String())
		}
		lines = append(lines, device.name+": "+strings.Join(terms, ", "))
	}
	return slices.Compact(lines) // the slots of a device have the same line
}
