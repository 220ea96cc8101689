package charts

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

const (
	upstreamList = umbrella + "/files/upstream.yaml"
	moveDocs     = "docs/how-to/move-from-akri.md"
)

// Upstream is the outcome of a value of upstream Akri's chart. The file describes the fields.
type Upstream struct {
	Value                   string
	Applied, Refused, Noted string
	Default                 any
	Differs                 string
	Unless                  []string
}

// UpstreamOf returns the entry of the list for a value: the first one that names it or a value
// above it.
func (s Sources) UpstreamOf(value string) (Upstream, bool) {
	i := slices.IndexFunc(s.Upstream, func(u Upstream) bool {
		return slices.ContainsFunc(s.names(u), func(name string) bool { return value == name || strings.HasPrefix(value, name+".") })
	})
	if i < 0 {
		return Upstream{}, false
	}
	return s.Upstream[i], true
}

// names returns the values that an entry stands for.
func (s Sources) names(u Upstream) []string {
	section, below, _ := strings.Cut(u.Value, ".")
	sections := []string{section}
	if section == "<handler>" || section == "*" {
		sections = nil
		for _, handler := range s.Handlers {
			if handler.Upstream() {
				sections = append(sections, handler.Name)
			}
		}
	}
	if section == "*" {
		sections = append(sections, "custom")
	}

	var names []string
	for _, section := range sections {
		names = append(names, strings.TrimSuffix(section+"."+below, "."))
	}
	return names
}

// replacedValues returns the values that templates refuse or note. The schemas must admit them,
// because an error of a schema does not say what to do instead.
func (s Sources) replacedValues() []string {
	var values []string
	for _, entry := range s.Upstream {
		if entry.Refused != "" || entry.Noted != "" {
			values = append(values, s.names(entry)...)
		}
	}
	return values
}

// admit adds a value of any type to the properties of an object, unless it is there.
func admit(properties, defs object, value string) {
	key, below, nested := strings.Cut(value, ".")
	property, found := properties[key].(object)
	switch {
	case !nested && found:
		return
	case !nested:
		properties[key] = object{}
		return
	case !found:
		property = object{"type": "object", "additionalProperties": false}
	}

	if reference, found := property["$ref"].(string); found {
		property = cloned(defs[strings.TrimPrefix(reference, "#/$defs/")].(object))
	}
	properties[key] = property
	if property["additionalProperties"] != false {
		return // it admits all values
	}
	if property["properties"] == nil {
		property["properties"] = object{}
	}
	admit(property["properties"].(object), defs, below)
}

// cloned returns a deep copy.
func cloned(schema object) object {
	encoded, _ := json.Marshal(schema)
	var copied object
	_ = json.Unmarshal(encoded, &copied)
	return copied
}

// movePage returns the page about moving from upstream Akri, with the outcome of each value.
func (s Sources) movePage() ([]byte, error) {
	var table strings.Builder
	table.WriteString("| Value of upstream Akri | Here |\n|---|---|\n")
	for _, entry := range s.Upstream {
		fmt.Fprintf(&table, "| `%s` | %s |\n", entry.Value, cell(entry.outcome()))
	}
	return s.replaced(moveDocs, "values", table.String())
}

func (u Upstream) outcome() string {
	applied, refused := "applied: "+u.Applied, "**refused**: "+u.Refused
	if u.Differs != "" {
		applied += "; **another default**: " + u.Differs
	}
	unless := "`" + strings.Join(u.Unless, "` or `") + "`"

	switch {
	case u.Refused != "" && len(u.Unless) > 0 && u.Applied != "":
		return fmt.Sprintf("with %s %s; otherwise %s", unless, applied, refused)
	case u.Refused != "" && len(u.Unless) > 0:
		return fmt.Sprintf("without %s, a value other than `%v` is %s", unless, u.Default, refused)
	case u.Refused != "" && u.Default != nil:
		return fmt.Sprintf("a value other than `%v` is %s", u.Default, refused)
	case u.Refused != "":
		return refused
	case u.Noted != "" && u.Applied != "":
		return applied + "; the notes of the release say: " + u.Noted
	case u.Noted != "":
		return "**not applied**, as the notes of the release say: " + u.Noted
	}
	return applied
}
