package handler

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"akri.sh/libs/details"
	"akri.sh/libs/typo"
)

// Filter is a list in the details of a request that includes or excludes devices, and what it is
// compared with. The details have it as NAME: {action: ACTION, items: ITEMS}.
type Filter struct {
	Name    string
	Items   []string
	Exclude bool
	// Values are those of the device, and Matches is the result.
	Values  []string
	Matches bool
}

// maxCompared limits the items and the values of which the nearest are looked for.
const maxCompared = 64

// MissOf returns how close a device comes to matching all filters of the details. In the corrected
// details, the nearest items are replaced by the values of the device. Matches reports whether the
// device matches other details.
func MissOf(device, text string, filters []Filter, matches func(details string) bool) *NearMiss {
	miss := &NearMiss{Device: device}
	corrected := text
	for _, f := range filters {
		if f.Matches {
			miss.Met = append(miss.Met, f.String())
			continue
		}
		n := f.nearest()
		mismatch := &Mismatch{Condition: f.String(), Found: n.found}
		if n.item >= 0 {
			mismatch.Wanted = f.Items[n.item]
		}
		miss.Mismatches = append(miss.Mismatches, mismatch)
		miss.Distance += uint32(n.weight)
		corrected = f.correct(corrected, n)
	}
	if corrected != "" && matches(corrected) {
		miss.CorrectedDetails = corrected
	}
	return miss
}

// nearest is the item that comes closest to a value of a device.
type nearest struct {
	item   int // -1 if there is none
	found  []string
	weight int // of the package typo
}

func (f Filter) nearest() nearest {
	values := slices.Clone(f.Values[:min(len(f.Values), maxCompared)])
	items := f.Items[:min(len(f.Items), maxCompared)]
	n := nearest{found: values}
	var value int
	n.item, value = typo.Nearest(items, values)
	switch {
	case len(values) == 0:
		n.weight = typo.Absent
	case f.Exclude:
		n.weight = 1 // the device has what the user wrote
	case n.item < 0:
		n.weight = 2 * typo.Far
	default:
		wanted := typo.Literal(items[n.item])
		n.weight = typo.Weight(typo.Distance(wanted, values[value]), wanted)
	}
	if value > 0 {
		n.found[0], n.found[value] = n.found[value], n.found[0]
	}
	return n
}

// correct replaces the nearest item in the details. It returns "" if the user cannot have meant the
// value. A device that is excluded stays so.
func (f Filter) correct(text string, n nearest) string {
	if text == "" || f.Exclude || n.weight >= typo.Far {
		return ""
	}
	corrected, err := details.Replace(text, n.found[0], f.Name, "items", n.item)
	if err != nil {
		return ""
	}
	return corrected
}

// String returns the filter with its first items.
func (f Filter) String() string {
	action := "Include"
	if f.Exclude {
		action = "Exclude"
	}
	var quoted []string
	for _, item := range f.Items[:min(len(f.Items), MaxExamples)] {
		quoted = append(quoted, strconv.Quote(item))
	}
	list := strings.Join(quoted, ", ")
	if more := len(f.Items) - MaxExamples; more > 0 {
		list += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s: %s [%s]", f.Name, action, list)
}
