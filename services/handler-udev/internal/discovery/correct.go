package discovery

import (
	"context"

	"akri.sh/libs/details"
	"akri.sh/libs/details/udev/rules"
	"akri.sh/libs/handler"
)

// correct returns the details with the rule corrected for the closest device of a group. With them,
// only devices of the group match. It returns "" if there are no such details.
func (s search) correct(ctx context.Context, g *group) string {
	closest := g.shown[0]
	for _, text := range s.spec.Rules[closest.rule].Corrections(closest.Miss) {
		rule, err := rules.Parse(text)
		if err != nil {
			continue
		}
		if s.matchesOnly(ctx, rule, g) {
			return s.replaceRule(closest.rule, text)
		}
		if text, ok := rule.Of(g.subsystem()); ok {
			if rule, err = rules.Parse(text); err == nil && s.matchesOnly(ctx, rule, g) {
				return s.replaceRule(closest.rule, text)
			}
		}
	}
	return ""
}

// matchesOnly reports whether a rule matches the closest device of a group, and no device that is
// not in the group.
func (s search) matchesOnly(ctx context.Context, rule rules.Rule, g *group) bool {
	if !rule.Matches(g.shown[0].device) {
		return false
	}
	for _, device := range s.devices {
		if ctx.Err() != nil {
			return false
		}
		if rule.Matches(device) && !g.offered[nearestWithDevnode(device).Devpath()] {
			return false
		}
	}
	return true
}

// replaceRule returns the details with another rule, or "" if they cannot be written.
func (s search) replaceRule(i int, text string) string {
	corrected, err := details.Replace(s.details, text, "udevRules", i)
	if err != nil {
		return ""
	}
	spec, err := ParseSpec(handler.Request{Details: corrected})
	if err != nil || spec.Rules[i].String() != text {
		return ""
	}
	return corrected
}
