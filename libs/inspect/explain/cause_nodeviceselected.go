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

func init() { register(rule{NoDeviceSelected, LinkScheduled, 2, noDeviceSelected}) }

func noDeviceSelected(t target) []Cause {
	var causes []Cause
	for _, r := range t.unallocated() {
		if len(r.selected) >= r.count() {
			continue
		}
		cause := Cause{Message: fmt.Sprintf("no device of the DeviceClass %s matches the %s", r.DeviceClassName, &r), Evidence: t.closest(&r)}
		switch {
		case len(r.selected) > 0:
			cause.Message = fmt.Sprintf("%s of the DeviceClass %s, of %d that are needed, for the %s", Plural(len(r.selected), "device"), r.DeviceClassName, r.Count, &r)
		case len(r.devices) == 0:
			cause.Message = fmt.Sprintf("the DeviceClass %s has no device, for the %s", r.DeviceClassName, &r)
		}

		cause.Remedies = []Remedy{
			{Text: "List the devices that exist.", Command: "kubectl akri devices --all-namespaces"},
			r.claim.edit(t.pod, "Correct the request."),
		}
		if slices.ContainsFunc(cause.Evidence, func(line string) bool { return strings.Contains(line, "no such key") }) {
			cause.Remedies = append(cause.Remedies, Remedy{
				Text:    "Or publish the property as an attribute, if the device has it.",
				Command: fmt.Sprintf("kubectl annotate configuration.akri.sh CONFIGURATION --namespace NAMESPACE %s=PROPERTY", akriv0.PropertiesAnnotation),
			})
		}
		causes = append(causes, cause)
	}
	return causes
}

const maxClosest = 5

// closest describes the devices of the class that match the most of the selectors.
func (s *Snapshot) closest(r *request) []string {
	type miss struct {
		text  string
		terms int
	}
	var misses []miss
	for _, c := range r.devices {
		if text := s.mismatch(r, c); text != "" {
			misses = append(misses, miss{fmt.Sprintf("%s/%s: %s", c.instance.Namespace, c.instance.Name, text), strings.Count(text, ", ")})
		}
	}
	slices.SortStableFunc(misses, func(a, b miss) int { return cmp.Compare(a.terms, b.terms) })

	var lines []string
	for _, m := range misses[:min(len(misses), maxClosest)] {
		lines = append(lines, m.text)
	}
	return slices.Compact(lines) // the slots of a device have the same line
}
