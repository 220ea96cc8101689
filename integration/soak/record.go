package soak

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/yaml"
)

// recentActions is the number of actions that are printed with the first violation.
const recentActions = 40

// record counts actions and prints violations of invariants. It is safe for concurrent use.
type record struct {
	mu         sync.Mutex
	started    time.Time
	out        io.Writer
	logs       string    // the directory of all logs
	actions    io.Writer // for all actions
	counts     map[string]int
	recent     []string
	violations []string
	seen       map[string]bool
}

func newRecord(out io.Writer, logs string, actions io.Writer) *record {
	return &record{started: time.Now(), out: out, logs: logs, actions: actions, counts: map[string]int{}, seen: map[string]bool{}}
}

// did records an action of the kind.
func (r *record) did(kind, format string, arguments ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts[kind]++
	action := fmt.Sprintf("%s %s %s: %s", time.Now().UTC().Format(time.RFC3339Nano), r.elapsed(), kind, fmt.Sprintf(format, arguments...))
	fmt.Fprintln(r.actions, action)
	r.recent = append(r.recent, action)
	r.recent = r.recent[max(0, len(r.recent)-recentActions):]
}

// violated records the violation of an invariant. The first is printed with the objects, the last
// actions and the place of the logs. An equal violation is counted once.
func (r *record) violated(err error, objects ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen[err.Error()] {
		return
	}
	r.seen[err.Error()] = true
	r.violations = append(r.violations, fmt.Sprintf("%s (%s)", err, r.elapsed()))
	fmt.Fprintf(r.out, "%s VIOLATION at %s: %v\n", r.elapsed(), time.Now().UTC().Format(time.RFC3339Nano), err)
	if len(r.violations) > 1 {
		return
	}
	for _, object := range objects {
		if text, err := yaml.Marshal(object); err == nil && !isNil(object) {
			fmt.Fprintf(r.out, "--- %T\n%s", object, text)
		}
	}
	fmt.Fprintf(r.out, "--- last actions\n%s\n--- logs: %s\n", strings.Join(r.recent, "\n"), r.logs)
}

func isNil(object any) bool {
	value := reflect.ValueOf(object)
	return !value.IsValid() || value.Kind() == reflect.Pointer && value.IsNil()
}

// progress prints one line.
func (r *record) progress(format string, arguments ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, "%s %s\n", r.elapsed(), fmt.Sprintf(format, arguments...))
}

// summary returns the number of actions of each kind.
func (r *record) summary() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(r.counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", kind, r.counts[kind]))
	}
	return strings.Join(parts, ", ")
}

// err returns an error with all violations.
func (r *record) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.violations) == 0 {
		return nil
	}
	return errors.New("invariants were violated:\n" + strings.Join(r.violations, "\n"))
}

func (r *record) elapsed() string { return fmt.Sprintf("%7.1fs", time.Since(r.started).Seconds()) }
