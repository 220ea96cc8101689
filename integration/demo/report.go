package demo

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// quietFor is how long nothing may be heard.
const quietFor = 5 * time.Second

// report prints what happens, each line with the time since the start.
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

// while says now and then that something still goes on.
func (r *report) while(what string, do func() error) error {
	started := time.Now()
	ticker := time.NewTicker(quietFor)
	defer ticker.Stop()
	result := make(chan error, 1)
	go func() { result <- do() }()
	for {
		select {
		case err := <-result:
			return err
		case <-ticker.C:
			r.step(fmt.Sprintf("%s (%d s)", what, int(time.Since(started).Seconds())))
		}
	}
}
