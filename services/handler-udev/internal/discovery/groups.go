package discovery

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"akri.sh/libs/handler"
)

// group is candidates of one kind: devices of a subsystem that miss the same keys of a rule, and
// whose corrections differ only in numbers. 200 loop devices do not hide one zram device.
type group struct {
	// shown are the closest candidates of each device that would be offered, the closest first.
	shown []candidate
	// offered are the devpaths of all of them.
	offered map[string]bool
}

func (g *group) subsystem() string { return g.shown[0].device.Subsystem() }

func (g *group) compare(other *group) int { return g.shown[0].compare(other.shown[0]) }

// groups returns the groups of sorted candidates, the closest first. A device is shown once: rules
// often match a device and those below it that have no device node.
func groups(sorted []candidate) []*group {
	byKind := map[string]*group{}
	shown := map[string]bool{}
	for _, c := range sorted {
		kind := c.kind()
		g := byKind[kind]
		if g == nil {
			g = &group{offered: map[string]bool{}}
			byKind[kind] = g
		}
		g.offered[c.offered] = true
		if !shown[c.offered] {
			shown[c.offered] = true
			g.shown = append(g.shown, c)
		}
	}
	list := slices.Collect(maps.Values(byKind))
	list = slices.DeleteFunc(list, func(g *group) bool { return len(g.shown) == 0 })
	slices.SortFunc(list, (*group).compare)
	return list
}

// kind is equal for the candidates of a group.
func (c candidate) kind() string {
	var kind strings.Builder
	fmt.Fprintf(&kind, "%d %q", c.rule, c.device.Subsystem())
	for _, mismatch := range c.Missed {
		fmt.Fprintf(&kind, " %q %q %t", mismatch.Key, mismatch.Kind, mismatch.Exists)
	}
	return kind.String()
}

// maxOfSubsystem is the number of groups of a subsystem if there are others.
const maxOfSubsystem = 2

// spread returns the groups to show: the closest, of several subsystems.
func spread(all []*group) []*group {
	var first, rest []*group
	count := map[string]int{}
	for _, g := range all {
		if count[g.subsystem()]++; count[g.subsystem()] <= maxOfSubsystem {
			first = append(first, g)
		} else {
			rest = append(rest, g)
		}
	}
	list := slices.Concat(first, rest)
	list = list[:min(len(list), handler.MaxNearMisses)]
	slices.SortFunc(list, (*group).compare)
	return list
}

// nearMiss returns the message of the API.
func (g *group) nearMiss(corrected string) *handler.NearMiss {
	closest := g.shown[0]
	miss := &handler.NearMiss{
		Device: closest.name, Met: closest.Met, Kind: g.subsystem(), Count: uint32(len(g.shown)), Series: g.series(),
		CorrectedDetails: corrected, Distance: uint32(closest.Distance()),
	}
	for i, mismatch := range closest.Missed {
		miss.Mismatches = append(miss.Mismatches, &handler.Mismatch{Condition: mismatch.Key, Wanted: mismatch.Wanted, Found: g.found(i)})
	}
	return miss
}

// found returns different values that a key is compared with, that of the closest device first.
func (g *group) found(missed int) []string {
	var values []string
	for _, c := range g.shown {
		value := printable(c.Missed[missed].Found)
		if c.Missed[missed].Exists && !slices.Contains(values, value) {
			values = append(values, value)
		}
		if len(values) == handler.MaxExamples {
			break
		}
	}
	return values
}

// series returns the names of the devices. The first series has the closest device.
func (g *group) series() []*handler.Series {
	var list []*handler.Series
	byPrefix := map[string]*handler.Series{}
	names := make([]string, len(g.shown))
	for i, c := range g.shown {
		names[i] = c.name
	}
	closest := names[0]
	slices.SortFunc(names, compareNames)

	first := 0
	for _, name := range names {
		prefix, _ := cutNumber(name)
		s := byPrefix[prefix]
		if s == nil {
			s = &handler.Series{First: name}
			byPrefix[prefix] = s
			list = append(list, s)
		} else {
			s.Last = name
		}
		s.Count++
		if name == closest {
			first = slices.Index(list, s)
		}
	}
	list[0], list[first] = list[first], list[0]
	return list[:min(len(list), handler.MaxExamples)]
}

// cutNumber returns a name without the number at its end, and the number, or -1.
func cutNumber(name string) (prefix string, number int) {
	prefix = strings.TrimRight(name, "0123456789")
	number, err := strconv.Atoi(name[len(prefix):])
	if err != nil {
		return name, -1
	}
	return prefix, number
}

// compareNames sorts by the number at the end of names: loop10 follows loop9.
func compareNames(a, b string) int {
	prefixA, numberA := cutNumber(a)
	prefixB, numberB := cutNumber(b)
	return cmp.Or(cmp.Compare(prefixA, prefixB), cmp.Compare(numberA, numberB), cmp.Compare(a, b))
}
