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
	"sync/atomic"
	"syscall"
)

// maxSocketPath is the size of sockaddr_un.sun_path without its terminating zero byte.
const maxSocketPath = 107

// Socket is a Unix socket to listen on.
type Socket struct {
	// Path is absolute and has at most 107 bytes.
	Path string
	// Mode of the socket. Default: 0600.
	Mode fs.FileMode
	// DirectoryMode is the mode of directories that do not exist. Default: 0700.
	DirectoryMode fs.FileMode
	// private gives the directory of the socket the mode 0700.
	private bool
}

// Bind listens on the socket once: if its file is removed, no client can connect any more. It
// creates the directory, replaces the file of a process that has ended, and returns an error if the
// socket is still served.
func (s Socket) Bind(ctx context.Context) (net.Listener, error) { return s.bind(ctx) }

func (s Socket) bind(ctx context.Context) (*bound, error) {
	if !filepath.IsAbs(s.Path) || len(s.Path) > maxSocketPath {
		return nil, fmt.Errorf("socket path %q: must be absolute and at most %d bytes long", s.Path, maxSocketPath)
	}
	if err := s.makeDirectory(); err != nil {
		return nil, err
	}
	if err := removeStale(ctx, s.Path); err != nil {
		return nil, err
	}
	listener, err := listen(ctx, "unix", s.Path)
	if err != nil {
		return nil, err
	}
	// Another process may replace the file before this listener is closed; Close must not remove
	// that one.
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	b := &bound{Listener: listener, path: s.Path}
	if err := os.Chmod(s.Path, modeOr(s.Mode, 0o600)); err != nil {
		return nil, errors.Join(fmt.Errorf("set socket mode: %w", err), listener.Close())
	}
	if b.file, err = os.Lstat(s.Path); err != nil {
		return nil, errors.Join(fmt.Errorf("stat socket: %w", err), listener.Close())
	}
	return b, nil
}

func (s Socket) makeDirectory() error {
	directory := filepath.Dir(s.Path)
	if err := os.MkdirAll(directory, modeOr(s.DirectoryMode, 0o700)); err != nil {
		return fmt.Errorf("create socket directory: %w", err)
	}
	if s.private {
		if err := os.Chmod(directory, 0o700); err != nil {
			return fmt.Errorf("set mode of socket directory: %w", err)
		}
	}
	return nil
}

func modeOr(mode, otherwise fs.FileMode) fs.FileMode {
	if mode == 0 {
		return otherwise
	}
	return mode
}

func listen(ctx context.Context, network, address string) (net.Listener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	return listener, nil
}

// bound is a listener with its socket file. Close removes the file unless it was replaced.
type bound struct {
	net.Listener
	path   string
	file   os.FileInfo
	closed atomic.Bool
}

// reachable returns whether clients reach the listener. While it is open, no other file can have
// the inode of its file.
func (b *bound) reachable() bool {
	now, err := os.Lstat(b.path)
	return err == nil && os.SameFile(now, b.file)
}

func (b *bound) Close() error {
	if b.closed.Swap(true) {
		return net.ErrClosed
	}
	if b.reachable() {
		_ = os.Remove(b.path)
	}
	return b.Listener.Close()
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

// CheckDirectory returns a liveness check for a client of the sockets at the addresses. It fails if
// the directory of one was removed: a container keeps the directory that is mounted, and does not
// see another one before it is restarted.
func CheckDirectory(addresses ...string) func(context.Context) error {
	return func(context.Context) error {
		var problems []error
		for _, address := range addresses {
			path, isUnix := strings.CutPrefix(address, "unix://")
			if isUnix && removed(filepath.Dir(path)) {
				problems = append(problems, fmt.Errorf("the directory %s was removed", filepath.Dir(path)))
			}
		}
		return errors.Join(problems...)
	}
}

// removed returns whether a directory that can be opened was removed. It then has no name.
func removed(directory string) bool {
	var stat syscall.Stat_t
	return syscall.Stat(directory, &stat) == nil && stat.Nlink == 0
}
