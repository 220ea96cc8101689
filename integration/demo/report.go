package demo

import (
	"fmt"
	"io"
	"sync"
	"time"

	"akri.sh/integration/progress"
)

// progressInterval is the time between progress lines of a long step.
const progressInterval = 5 * time.Second

// report prints lines with the time since the start.
type report struct {
	mu      sync.Mutex
	out     io.Writer
	started time.Time
}

func newReport(out io.Writer) *report { return &report{out: out, started: time.Now()} }

func (r *report) line(mark, format string, arguments ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, "%7.1fs %s %s\n", time.Since(r.started).Seconds(), mark, fmt.Sprintf(format, arguments...))
}

func (r *report) title(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintf(r.out, "\n%s\n", text)
}

func (r *report) step(text string)                     { r.line("·", "%s", text) }
func (r *report) done(format string, arguments ...any) { r.line("✔", format, arguments...) }
func (r *report) since(start time.Time, text string) {
	r.line("✔", "+%4d ms  %s", time.Since(start).Milliseconds(), text)
}

// while calls do and prints progress lines until it returns.
func (r *report) while(step string, do func() error) error {
	return progress.While(progressInterval, func(elapsed time.Duration) {
		r.step(fmt.Sprintf("%s (%d s)", step, int(elapsed.Seconds())))
	}, do)
}
