package demo

import (
	"context"
	"io"
	"os"
)

// Lock is the lock of a demo that shows nothing.
func Lock(ctx context.Context, cache string) (*os.File, error) {
	d := &demo{report: newReport(io.Discard)}
	return d.lock(ctx, cache)
}

// CopySources returns a copy of what a demo reads after its builds.
func CopySources() (dir string, remove func(), err error) { return copySources() }
