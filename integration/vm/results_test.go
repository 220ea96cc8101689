package vm_test

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"
)

// results are those of all tests of devices.
var results report

// report is what was done to devices, in a table for each kind of guests.
type report struct {
	mu      sync.Mutex
	tables  []*table
	current *table
}

// table has the results of guests with the same kernel and processor.
type table struct {
	guest  string
	result []result
}

type result struct{ device, done, outcome string }

// add adds the result of a test that ends, with what the test has seen.
func (r *report) add(t *testing.T, device, done, seen string) {
	t.Helper()
	outcome := "passed"
	if t.Failed() {
		outcome = "**failed**"
	}
	if seen != "" {
		outcome += ": " + seen
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.current.result = append(r.current.result, result{device, done, outcome})
}

// ranOn sets the kernel and the processor of the guest of the results that follow.
func (r *report) ranOn(guest string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.tables, func(t *table) bool { return t.guest == guest })
	if i < 0 {
		i = len(r.tables)
		r.tables = append(r.tables, &table{guest: guest})
	}
	r.current = r.tables[i]
}

// print prints the tables in Markdown.
func (r *report) print(out io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.tables {
		fmt.Fprintf(out, "\n%s, %s:\n\n| Device | What was done | Result |\n|---|---|---|\n", time.Now().UTC().Format(time.DateOnly), t.guest)
		for _, row := range t.result {
			fmt.Fprintf(out, "| %s | %s | %s |\n", row.device, row.done, row.outcome)
		}
	}
}
