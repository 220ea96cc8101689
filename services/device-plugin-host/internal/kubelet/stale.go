package kubelet

import (
	"context"
	"os"
	"path/filepath"

	"akri.sh/libs/rpc"
)

// RemoveStale removes the sockets that match the pattern and that nobody serves: a process that was killed leaves its
// own behind.
func (f *Folder) RemoveStale(ctx context.Context, pattern string) {
	paths, _ := filepath.Glob(f.Path(pattern)) // the one error is a bad pattern
	for _, path := range paths {
		if served, err := rpc.Served(ctx, path); err == nil && !served {
			_ = os.Remove(path)
		}
	}
}
