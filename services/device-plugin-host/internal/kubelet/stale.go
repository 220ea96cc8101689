package kubelet

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

// RemoveStale removes the sockets that match the pattern and that nobody serves: a process that was killed leaves its
// own behind.
func (f *Folder) RemoveStale(ctx context.Context, pattern string) {
	paths, _ := filepath.Glob(f.Path(pattern)) // the one error is a bad pattern
	for _, path := range paths {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		switch {
		case err == nil:
			_ = conn.Close()
		case errors.Is(err, syscall.ECONNREFUSED): // any other error says nothing about the socket
			_ = os.Remove(path)
		}
	}
}
