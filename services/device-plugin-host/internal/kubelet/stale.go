package kubelet

import (
	"context"
	"net"
	"os"
	"path/filepath"
)

// RemoveStale removes the sockets that match the pattern and that nobody serves: a process that was killed leaves its
// own behind.
func (f *Folder) RemoveStale(ctx context.Context, pattern string) {
	paths, _ := filepath.Glob(f.Path(pattern)) // the one error is a bad pattern
	for _, path := range paths {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
		if err != nil {
			_ = os.Remove(path)
			continue
		}
		_ = conn.Close()
	}
}
