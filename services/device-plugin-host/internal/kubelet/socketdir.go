// Package kubelet is the client side of the kubelet: it registers device plugins and detects
// restarts of the kubelet.
package kubelet

import (
	"context"
	"os"
	"path/filepath"
	"sync"

	"go.uber.org/zap"

	"akri.sh/libs/rpc"
)

const socketName = "kubelet.sock"

// SocketDir is the directory of the sockets of the kubelet and its device plugins. The kubelet
// empties it when it starts.
type SocketDir struct {
	path string
	log  *zap.Logger

	mu            sync.Mutex
	registrations map[string]context.CancelFunc // by socket name
}

// NewSocketDir returns the directory at path. It does not access it.
func NewSocketDir(path string, log *zap.Logger) *SocketDir {
	return &SocketDir{path: path, log: log, registrations: map[string]context.CancelFunc{}}
}

// Path returns the path of a file in the directory.
func (d *SocketDir) Path(name string) string { return filepath.Join(d.path, name) }

// Address returns the gRPC address of the kubelet's registration socket.
func (d *SocketDir) Address() string { return "unix://" + d.Path(socketName) }

// RemoveStale removes the sockets that match the pattern and that no process serves. A killed
// process leaves its sockets behind.
func (d *SocketDir) RemoveStale(ctx context.Context, pattern string) {
	paths, _ := filepath.Glob(d.Path(pattern)) // the only error is a malformed pattern
	for _, path := range paths {
		if served, err := rpc.Served(ctx, path); err == nil && !served {
			_ = os.Remove(path)
		}
	}
}
