package discovery

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"unicode"

	"akri.sh/libs/details/udev/rules"
	"akri.sh/libs/handler"
)

// maxClosest is the number of devices of an explanation.
const maxClosest = 5

// nearMiss is a device that no rule matches, and the rule that it comes closest to.
type nearMiss struct {
	rules.Miss
	device  string // the device node, or the devpath
	offered string // devpath of the device that would be offered
	hasNode bool
}

// Explain implements handler.Explainer.
func (i *Inventory) Explain(ctx context.Context, request handler.Request) ([]*handler.NearMiss, error) {
	spec, err := ParseSpec(request)
	if err != nil {
		return nil, err
	}
	devices, err := i.database.Devices("")
	if err != nil {
		return nil, err
	}
	var response []*handler.NearMiss
	for _, miss := range spec.closest(ctx, devices) {
		near := &handler.NearMiss{Device: miss.device, Met: miss.Met, Missed: miss.Missed}
		if miss.Exists {
			value := printable(miss.Value)
			near.Value = &value
		}
		response = append(response, near)
	}
	return response, ctx.Err()
}

// closest returns one device for each that would be offered.
func (s Spec) closest(ctx context.Context, devices []rules.Device) []nearMiss {
	byOffered := map[string]nearMiss{}
	for _, device := range devices {
		if ctx.Err() != nil {
			return nil
		}
		miss, found := s.nearMiss(device)
		if other, exists := byOffered[miss.offered]; found && (!exists || miss.compare(other) < 0) {
			byOffered[miss.offered] = miss
		}
	}
	var sorted []nearMiss
	for _, miss := range byOffered {
		sorted = append(sorted, miss)
	}
	slices.SortFunc(sorted, nearMiss.compare)
	return sorted[:min(len(sorted), maxClosest)]
}

// nearMiss returns the rule that the device comes closest to. A device that a rule matches is none,
// and neither is one with nothing in common with the rules.
func (s Spec) nearMiss(device rules.Device) (closest nearMiss, found bool) {
	for _, rule := range s.Rules {
		miss := rule.Miss(device)
		if miss.Left == 0 {
			return nearMiss{}, false
		}
		if miss.Selective && (!found || miss.Compare(closest.Miss) < 0) {
			closest.Miss, found = miss, true
		}
	}
	if !found || !device.Exists() {
		return nearMiss{}, false
	}
	node := device.Devnode()
	closest.device, closest.hasNode, closest.offered = cmp.Or(node, device.Devpath()), node != "", nearestWithDevnode(device).devpath
	return closest, true
}

func (m nearMiss) compare(other nearMiss) int {
	switch c := m.Compare(other.Miss); {
	case c != 0:
		return c
	case m.hasNode != other.hasNode && m.hasNode:
		return -1
	case m.hasNode != other.hasNode:
		return 1
	}
	return compareInTree(m.device, other.device)
}

// printable replaces bytes that are not UTF-8, which protobuf refuses, and control characters.
func printable(value string) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || unicode.IsControl(r) {
			return '?'
		}
		return r
	}, strings.ToValidUTF8(value, "?"))
}
