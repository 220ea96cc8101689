package explain

import (
	"maps"
	"slices"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Handlers returns the verdicts on the Discovery Handlers that Configurations name, by name.
func Handlers(s *Snapshot) []Verdict {
	byName := map[string][]Link{}
	for i := range s.Configurations {
		c := &s.Configurations[i]
		name := c.Spec.DiscoveryHandler.Name
		byName[name] = append(byName[name], target{Snapshot: s, configuration: c}.handlerLink())
	}
	var verdicts []Verdict
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		worst := slices.MaxFunc(byName[name], func(a, b Link) int { return severity[a.State] - severity[b.State] })
		verdicts = append(verdicts, worst.of(akriv0.SubjectHandler, "", name))
	}
	return verdicts
}
