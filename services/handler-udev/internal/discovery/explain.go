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

// candidate is a device that no rule matches, and the rule that it comes closest to.
type candidate struct {
	rules.Miss

	device rules.Device
	rule   int // index
	// name is the device node or the devpath, and offered the devpath of the device that would be
	// offered.
	name, offered string
	hasNode       bool
}

// compare orders candidates: the closest first.
func (c candidate) compare(other candidate) int {
	switch order := c.Compare(other.Miss); {
	case order != 0:
		return order
	case c.hasNode != other.hasNode && c.hasNode:
		return -1
	case c.hasNode != other.hasNode:
		return 1
	}
	return cmp.Or(compareNames(c.name, other.name), cmp.Compare(c.device.Devpath(), other.device.Devpath()))
}

// Explain implements handler.Explainer. It compares all devices with all keys, for one caller at a
// time.
func (i *Inventory) Explain(ctx context.Context, request handler.Request) ([]*handler.NearMiss, error) {
	spec, err := ParseSpec(request)
	if err != nil {
		return nil, err
	}
	select {
	case i.explaining <- struct{}{}:
		defer func() { <-i.explaining }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}

	devices, err := i.database.Devices("")
	if err != nil {
		return nil, err
	}
	s := search{spec: spec, details: request.Details, devices: devices}
	found := s.closest(ctx)
	correcting, cancel := handler.HalfTime(ctx)
	defer cancel()
	var response []*handler.NearMiss
	for _, g := range found {
		response = append(response, g.nearMiss(s.correct(correcting, g)))
	}
	return response, ctx.Err()
}

// search looks for the devices that come closest to a Spec that matches none.
type search struct {
	spec    Spec
	details string
	devices []rules.Device
}

// clear is the distance from which other names of keys are not looked for: one mistake explains the
// closest device.
const clear = 1

func (s search) closest(ctx context.Context) []*group {
	found, _ := s.candidates(ctx, rules.Rule.Miss)
	if len(found) == 0 || found[0].Distance() > clear {
		ctx, cancel := handler.HalfTime(ctx)
		defer cancel()
		otherwise, complete := s.candidates(ctx, func(rule rules.Rule, device rules.Device) rules.Miss {
			return rule.Otherwise(rule.Miss(device), device)
		})
		if complete {
			found = otherwise
		}
	}
	return spread(groups(relevant(found)))
}

// candidates returns the devices that have something in common with the rules, the closest first.
// The list is complete unless ctx ended.
func (s search) candidates(ctx context.Context, compare func(rules.Rule, rules.Device) rules.Miss) (found []candidate, complete bool) {
	for _, device := range s.devices {
		if ctx.Err() != nil {
			break
		}
		if c, ok := s.candidate(device, compare); ok {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, candidate.compare)
	return found, ctx.Err() == nil
}

// relevant returns the candidates to show besides the closest one: those that meet as
// many keys and are about as close, and those for which all keys can be corrected if the closest is
// none of them.
func relevant(sorted []candidate) []candidate {
	if len(sorted) == 0 {
		return nil
	}
	best := sorted[0]
	return slices.DeleteFunc(sorted, func(c candidate) bool {
		switch {
		case len(c.Missed) > len(best.Missed):
			return best.Similar() || !c.Similar()
		case best.Similar():
			return c.Distance() > best.Distance()+1
		default:
			return false
		}
	})
}

func (s search) candidate(device rules.Device, compare func(rules.Rule, rules.Device) rules.Miss) (closest candidate, found bool) {
	for i, rule := range s.spec.Rules {
		miss := compare(rule, device)
		if len(miss.Missed) == 0 {
			return candidate{}, false
		}
		if miss.Related() && (!found || miss.Compare(closest.Miss) < 0) {
			closest, found = candidate{Miss: miss, device: device, rule: i}, true
		}
	}
	if !found || !device.Exists() {
		return candidate{}, false
	}
	node := device.Devnode()
	closest.name, closest.hasNode, closest.offered = cmp.Or(node, device.Devpath()), node != "", nearestWithDevnode(device).Devpath()
	return closest, true
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
