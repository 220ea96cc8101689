package rpc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// maxSocketPath is what fits into sockaddr_un with room for the byte that ends it.
const maxSocketPath = 107

// Listen listens on `unix:///abs/path` (mode 0600, in a folder that is made when missing) or on `host:port`. A socket
// that a dead process left behind is replaced; one that somebody still serves is not.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(address, "unix://")
	if !isUnix {
		return listen(ctx, "tcp", address)
	}
	return ListenUnix(ctx, path, 0o600)
}

// ListenUnix listens on a unix socket with the given mode.
func ListenUnix(ctx context.Context, path string, mode fs.FileMode) (net.Listener, error) {
	if !filepath.IsAbs(path) || len(path) > maxSocketPath {
		return nil, fmt.Errorf("socket path %q: want an absolute path of at most %d bytes", path, maxSocketPath)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make socket folder: %w", err)
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	listener, err := listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, errors.Join(fmt.Errorf("set socket mode: %w", err), listener.Close())
	}
	// The file is ours to remove only while it is the one we made: a successor may already have replaced it.
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	return newOwned(listener, path)
}

func listen(ctx context.Context, network, address string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return listener, nil
}

func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is not a socket", path)
	}
	served, err := Served(ctx, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // it went meanwhile
	case err != nil:
		return err
	case served:
		return fmt.Errorf("%s is in use by another process", path)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove stale socket: %w", err)
	}
	return nil
}

// Served tells whether a process serves the socket at a path, or left it behind. Only a refused connection says the latter: whoever
// is told to stop meanwhile, or meets a server with too much to do, gets an error.
func Served(ctx context.Context, path string) (bool, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return true, conn.Close()
	case errors.Is(err, syscall.ECONNREFUSED):
		return false, nil
	default:
		return false, fmt.Errorf("ask whether %s is in use: %w", path, err)
	}
}

// owned removes its socket file on Close unless another process has put its own there.
type owned struct {
	net.Listener
	path string
	made os.FileInfo
}

func newOwned(listener net.Listener, path string) (net.Listener, error) {
	made, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("look at socket: %w", err), listener.Close())
	}
	return &owned{Listener: listener, path: path, made: made}, nil
}

func (o *owned) Close() error {
	if now, err := os.Lstat(o.path); err == nil && os.SameFile(now, o.made) {
		_ = os.Remove(o.path)
	}
	return o.Listener.Close()
}
