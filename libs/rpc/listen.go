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

// maxSocketPath is the size of sockaddr_un.sun_path without its terminating zero byte.
const maxSocketPath = 107

// Listen listens on `unix:///abs/path` or `host:port`. It creates the directory of a unix socket
// and sets the mode of the socket to 0600. It replaces the socket file of a process that has ended
// and returns an error if the socket is still served.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	path, isUnix := strings.CutPrefix(address, "unix://")
	if !isUnix {
		return listen(ctx, "tcp", address)
	}
	return ListenUnix(ctx, path, 0o600)
}

// ListenPrivate is Listen for a service whose sockets are for services of the node only. A
// directory that is named like its socket, such as /run/akri/registrar/registrar.sock, belongs to
// the service and gets the mode 0700: the kubelet creates it with mode 0755.
func ListenPrivate(ctx context.Context, address string) (net.Listener, error) {
	listener, err := Listen(ctx, address)
	if err != nil {
		return nil, err
	}
	path, isUnix := strings.CutPrefix(address, "unix://")
	if directory := filepath.Dir(path); isUnix && filepath.Base(directory)+".sock" == filepath.Base(path) {
		if err := os.Chmod(directory, 0o700); err != nil {
			return nil, errors.Join(fmt.Errorf("set mode of socket directory: %w", err), listener.Close())
		}
	}
	return listener, nil
}

// ListenUnix is Listen for the path of a unix socket, with a given mode.
func ListenUnix(ctx context.Context, path string, mode fs.FileMode) (net.Listener, error) {
	if !filepath.IsAbs(path) || len(path) > maxSocketPath {
		return nil, fmt.Errorf("socket path %q: must be absolute and at most %d bytes long", path, maxSocketPath)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("create socket directory: %w", err)
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
	// Another process may replace the file before this listener is closed; Close must not remove
	// that one.
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	info, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("stat socket: %w", err), listener.Close())
	}
	return &ownedListener{Listener: listener, path: path, info: info}, nil
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
		return fmt.Errorf("stat socket: %w", err)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s exists and is not a socket", path)
	}
	served, err := Served(ctx, path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil // removed meanwhile
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

// Served reports whether a process serves the unix socket at path. Only a refused connection proves
// that none does; any other failure to connect is returned as an error.
func Served(ctx context.Context, path string) (bool, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return true, conn.Close()
	case errors.Is(err, syscall.ECONNREFUSED):
		return false, nil
	default:
		return false, fmt.Errorf("check whether %s is in use: %w", path, err)
	}
}

// ownedListener removes its socket file on Close unless another process has replaced the file.
type ownedListener struct {
	net.Listener
	path string
	info os.FileInfo
}

func (l *ownedListener) Close() error {
	if now, err := os.Lstat(l.path); err == nil && os.SameFile(now, l.info) {
		_ = os.Remove(l.path)
	}
	return l.Listener.Close()
}
