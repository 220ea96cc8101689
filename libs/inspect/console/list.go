package console

import (
	"maps"
	"slices"
	"strings"
)

// maxRows is the number of rows of a table.
const maxRows = 1000

// row is a line of a list.
type row struct {
	// Value is what the template shows.
	Value any
	// values are those that filters compare, by the parameter of the query.
	values map[string][]string
	// words are the texts in which the search looks.
	words []string
}

// list is a page with rows, of which the query selects some.
type list struct {
	Path, Noun, Query string
	Filters           []filter
	Rows              []any
	Found, Total      int
	// Above is what the page shows above the rows.
	Above any
}

// filter is a parameter with the values of all rows.
type filter struct {
	Name, Label, Chosen string
	Values              []string
}

// filters are the parameters of lists, in the order in which pages show them.
var filters = []filter{
	{Name: "state", Label: "State"}, {Name: "kind", Label: "Kind"}, {Name: "cause", Label: "Cause"}, {Name: "type", Label: "Type"},
	{Name: "namespace", Label: "Namespace"}, {Name: "configuration", Label: "Configuration"}, {Name: "handler", Label: "Handler"},
	{Name: "node", Label: "Node"}, {Name: "slots", Label: "Slots"},
}

// list returns the rows that the query selects.
func (v view) list(noun string, rows []row) list {
	query := v.r.URL.Query()
	l := list{Path: v.r.URL.Path, Noun: noun, Query: query.Get("q"), Total: len(rows)}
	chosen := map[string]string{}
	for _, f := range filters {
		f.Chosen = query.Get(f.Name)
		f.Values = valuesOf(rows, f.Name, f.Chosen)
		if len(f.Values) > 0 {
			l.Filters = append(l.Filters, f)
			chosen[f.Name] = f.Chosen
		}
	}

	words := strings.Fields(strings.ToLower(l.Query))
	for _, r := range rows {
		if !r.matches(chosen, words) {
			continue
		}
		l.Found++
		if l.Found <= maxRows {
			l.Rows = append(l.Rows, r.Value)
		}
	}
	return l
}

// valuesOf returns the values of all rows, and the chosen one.
func valuesOf(rows []row, name, chosen string) []string {
	found := map[string]bool{}
	for _, r := range rows {
		for _, value := range r.values[name] {
			found[value] = true
		}
	}
	if chosen != "" {
		found[chosen] = true
	}
	delete(found, "")
	return slices.Sorted(maps.Keys(found))
}

func (r row) matches(chosen map[string]string, words []string) bool {
	for name, value := range chosen {
		if value != "" && !slices.Contains(r.values[name], value) {
			return false
		}
	}
	text := strings.ToLower(strings.Join(r.words, "\n"))
	return !slices.ContainsFunc(words, func(word string) bool { return !strings.Contains(text, word) })
}
