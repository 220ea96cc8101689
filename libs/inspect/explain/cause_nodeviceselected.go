package explain

import (
	"cmp"
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
		cause := Cause{Message: fmt.Sprintf("no device of the DeviceClass %s matches the %s", r.DeviceClassName, &r), Evidence: t.closest(&r)}
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
		if slices.ContainsFunc(cause.Evidence, func(line string) bool { return strings.Contains(line, "no such key") }) {
			cause.Remedies = append(cause.Remedies, remedy("Or publish the property as an attribute, if the device has it.",
				"kubectl annotate configuration.akri.sh CONFIGURATION --namespace NAMESPACE %s=PROPERTY", akriv0.PropertiesAnnotation))
		}
		report(cause)
	}
}

const maxClosest = 5

// closest describes the devices of the class that match the most of the selectors.
func (s *Snapshot) closest(r *request) []string {
	var lines []string
	terms := map[string]int{}
	for _, c := range r.devices {
		if text := s.mismatch(r, c); text != "" {
			line := fmt.Sprintf("%s/%s: %s", c.instance.Namespace, c.instance.Name, text)
			lines = append(lines, line)
			terms[line] = strings.Count(text, ", ")
		}
	}
	slices.SortStableFunc(lines, func(a, b string) int { return cmp.Compare(terms[a], terms[b]) })
	return slices.Compact(lines[:min(len(lines), maxClosest)]) // the slots of a device have the same line
}
