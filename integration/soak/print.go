package soak

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// quantities are those that are measured, in the order of the table.
var quantities = []string{memory, goroutines, descriptors, objects, etcdSize, checkpoint, events}

// rows returns one series for each quantity of each service and kind: that of the process that had
// the most quiet phases. Points of the warm-up are removed.
func (m *measurements) rows(warmUp float64) []series {
	longest := map[string]series{}
	for _, measured := range m.series {
		s := *measured
		s.quiet = s.after(warmUp)
		key := s.quantity + "\x00" + s.name
		other, exists := longest[key]
		if !exists || cmp.Or(cmp.Compare(len(s.quiet), len(other.quiet)), cmp.Compare(s.process, other.process)) > 0 {
			longest[key] = s
		}
	}
	var rows []series
	for _, s := range longest {
		if len(s.quiet) > 0 {
			rows = append(rows, s)
		}
	}
	slices.SortFunc(rows, func(a, b series) int {
		return cmp.Or(cmp.Compare(slices.Index(quantities, a.quantity), slices.Index(quantities, b.quantity)), strings.Compare(a.name, b.name))
	})
	return rows
}

// after returns the points after the warm-up, or the last point if there are none.
func (s *series) after(warmUp float64) []point {
	first := slices.IndexFunc(s.quiet, func(p point) bool { return p.hours >= warmUp })
	if first < 0 {
		first = max(0, len(s.quiet)-1)
	}
	return s.quiet[first:]
}

// print prints the table. It returns an error for each slope over its limit.
func (m *measurements) print(out io.Writer, warmUp float64) error {
	fmt.Fprintf(out, "\n| Quantity | of | first | last | max | slope per hour | t | phases |\n|---|---|---|---|---|---|---|---|\n")
	var errs []error
	for _, s := range m.rows(warmUp) {
		l := fit(s.quiet)
		highest := slices.MaxFunc(s.all, func(a, b point) int { return cmp.Compare(a.value, b.value) }).value
		slope, t := "", ""
		if l.points >= minPoints {
			slope, t = fmt.Sprintf("%+.2f", l.slope), fmt.Sprintf("%.1f", l.t)
		}
		fmt.Fprintf(out, "| %s | %s | %s | %s | %s | %s | %s | %d |\n", s.quantity, s.name,
			number(s.quiet[0].value), number(s.quiet[len(s.quiet)-1].value), number(highest), slope, t, l.points)
		if limit, limited := limits[s.quantity]; limited && l.grows(limit) {
			errs = append(errs, fmt.Errorf("%s of %s grows by %.2f an hour (mean %.2f, t %.1f)", s.quantity, s.name, l.slope, l.mean, l.t))
		}
	}
	return errors.Join(errs...)
}

func number(value float64) string {
	return strings.TrimSuffix(fmt.Sprintf("%.2f", value), ".00")
}
