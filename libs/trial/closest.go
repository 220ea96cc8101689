package trial

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Group is devices of one kind that meet the same conditions of the details, and not all.
type Group struct {
	// Kind is empty if the handler finds devices of one kind only.
	Kind string   `json:"kind,omitempty"`
	Met  []string `json:"met,omitempty"`
	// Mismatches are the conditions that the devices do not meet.
	Mismatches []Mismatch `json:"mismatches"`
	// Distance is lower for the closer of two groups with as many mismatches.
	Distance int `json:"distance"`
	// CorrectedDetails are discoveryDetails with which the first device matches, and no device of
	// another kind on its nodes. Empty if the handler has none.
	CorrectedDetails string `json:"correctedDetails,omitempty"`
	// Devices are those of nodes with the same devices, by the first node.
	Devices []Devices `json:"devices"`
}

// Devices are those of a group on one node, or on several nodes with the same devices.
type Devices struct {
	// Nodes is empty in a Result, which has a node.
	Nodes []string `json:"nodes,omitempty"`
	// First is the closest device.
	First string `json:"first"`
	// Series are not complete if their counts are not Count.
	Series []Series `json:"series"`
	// Count is the number of devices on each node.
	Count int `json:"count"`
}

// Series is devices whose names differ in one number. Last is empty if it has one device.
type Series struct {
	First string `json:"first"`
	Last  string `json:"last,omitempty"`
	Count int    `json:"count"`
}

// Mismatch is a condition that the devices of a group do not meet.
type Mismatch struct {
	// Condition of the details, and the value in it.
	Condition string `json:"condition"`
	Wanted    string `json:"wanted,omitempty"`
	// Found are values of the devices, that of the closest one first. Empty if they do not have it.
	Found []string `json:"found,omitempty"`
}

// Merge adds the devices of a group that is the Same.
func (g *Group) Merge(other Group) {
	found := func(closer, farther Mismatch) []string {
		all := slices.Clone(closer.Found)
		for _, value := range farther.Found {
			if len(all) < maxFound && !slices.Contains(all, value) {
				all = append(all, value)
			}
		}
		return all
	}
	for i := range g.Mismatches {
		if other.Distance < g.Distance {
			g.Mismatches[i].Found = found(other.Mismatches[i], g.Mismatches[i])
		} else {
			g.Mismatches[i].Found = found(g.Mismatches[i], other.Mismatches[i])
		}
	}
	g.CorrectedDetails = narrower(*g, other)
	g.Distance = min(g.Distance, other.Distance)

	for _, devices := range other.Devices {
		same := func(d Devices) bool { return d.Count == devices.Count && slices.Equal(d.Series, devices.Series) }
		if i := slices.IndexFunc(g.Devices, same); i >= 0 {
			g.Devices[i].Nodes = append(g.Devices[i].Nodes, devices.Nodes...)
		} else {
			g.Devices = append(g.Devices, devices)
		}
	}
}

// narrower returns the correction of the closer group. Of two nodes with devices that are as close,
// one can have devices of another kind, for which its correction has an additional condition, or
// for which it has none.
func narrower(a, b Group) string {
	switch {
	case a.Distance < b.Distance:
		return a.CorrectedDetails
	case a.Distance > b.Distance:
		return b.CorrectedDetails
	case a.CorrectedDetails == "" || b.CorrectedDetails == "":
		return ""
	case len(a.CorrectedDetails) >= len(b.CorrectedDetails):
		return a.CorrectedDetails
	default:
		return b.CorrectedDetails
	}
}

// maxFound is the number of values of a Mismatch.
const maxFound = 3

// Compare orders groups: the closest first.
func (g Group) Compare(other Group) int {
	return cmp.Or(
		cmp.Compare(len(g.Mismatches), len(other.Mismatches)), cmp.Compare(g.Distance, other.Distance),
		cmp.Compare(g.Kind, other.Kind),
	)
}

// Same reports whether two nodes have the same kind of devices, for the same reason. Their devices,
// values and corrections can differ.
func (g Group) Same(other Group) bool {
	return g.Kind == other.Kind && slices.Equal(g.Met, other.Met) &&
		slices.EqualFunc(g.Mismatches, other.Mismatches, func(a, b Mismatch) bool { return a.Condition == b.Condition })
}

// Correction returns the closest group with CorrectedDetails, or nil.
func Correction(groups []Group) *Group {
	if i := slices.IndexFunc(groups, func(g Group) bool { return g.CorrectedDetails != "" }); i >= 0 {
		return &groups[i]
	}
	return nil
}

// String returns the devices and their nodes, the conditions that they do not meet, and their
// values.
func (g Group) String() string { return g.Where() + ": " + g.Reason() }

// First returns the closest device and its kind.
func (g Group) First() string {
	if len(g.Devices) == 0 {
		return g.Kind
	}
	return withKind(g.Devices[0].First, g.Kind)
}

func withKind(names, kind string) string {
	if kind == "" {
		return names
	}
	return names + " (" + kind + ")"
}

// Limits of texts.
const (
	maxPlaces = 3
	maxNodes  = 5
)

// Where returns the devices and their nodes.
func (g Group) Where() string {
	var places []string
	for _, devices := range g.Devices {
		places = append(places, devices.text(g.Kind))
	}
	return list(places, maxPlaces, "; ")
}

// Names returns the names of the devices.
func (d Devices) Names() string {
	var names []string
	shown := 0
	for _, series := range d.Series {
		shown += series.Count
		name := series.First
		if series.Last != "" {
			name += " to " + series.Last
		}
		names = append(names, name)
	}
	text := strings.Join(names, ", ")
	if more := d.Count - shown; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

func (d Devices) text(kind string) string {
	text := withKind(d.Names(), kind)
	if len(d.Nodes) > 0 {
		text += " on " + list(d.Nodes, maxNodes, ", ")
	}
	return text
}

// list returns the first texts, and the number of the others.
func list(texts []string, maximum int, separator string) string {
	shown := strings.Join(texts[:min(len(texts), maximum)], separator)
	if more := len(texts) - maximum; more > 0 {
		shown += fmt.Sprintf(" and %d more", more)
	}
	return shown
}

// Reason returns the conditions that the devices meet and do not meet, and their values.
func (g Group) Reason() string {
	var parts []string
	for _, mismatch := range g.Mismatches {
		parts = append(parts, mismatch.Condition+" did not: "+mismatch.values(g.several()))
	}
	text := strings.Join(parts, "; ")
	if len(g.Met) > 0 {
		return strings.Join(g.Met, ", ") + " matched, " + text
	}
	return strings.Replace(text, " did not: ", " did not match: ", 1)
}

func (g Group) several() bool {
	return len(g.Devices) > 1 || len(g.Devices) == 1 && g.Devices[0].Count > 1
}

func (m Mismatch) values(several bool) string {
	switch {
	case len(m.Found) == 0 && several:
		return "the devices have none"
	case len(m.Found) == 0:
		return "the device has none"
	}
	var quoted []string
	for _, value := range m.Found {
		quoted = append(quoted, strconv.Quote(value))
	}
	return "it is " + strings.Join(quoted, ", ")
}
