package vm_test

import (
	"cmp"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"
)

// results are those of all tests of devices.
var results report

// report is a table of what was done to devices.
type report struct {
	mu     sync.Mutex
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
	r.result = append(r.result, result{device, done, outcome})
}

// ranOn sets the kernel and the processor of the guests.
func (r *report) ranOn(guest string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.guest = guest
}

// print prints the table in Markdown, unless it is empty.
func (r *report) print(out io.Writer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.result) == 0 {
		return
	}
	fmt.Fprintf(out, "\n%s, %s:\n\n| Device | What was done | Result |\n|---|---|---|\n",
		time.Now().UTC().Format(time.DateOnly), cmp.Or(r.guest, "no guest"))
	for _, row := range r.result {
		fmt.Fprintf(out, "| %s | %s | %s |\n", row.device, row.done, row.outcome)
	}
}
