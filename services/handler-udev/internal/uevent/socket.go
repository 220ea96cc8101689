package uevent

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The multicast groups of the kernel, which reach every network namespace of the first user namespace, and of udev,
// which stay in its own.
const groups = 1 | 2

const (
	// receiveBuffer holds some thousand events: what a hub full of devices makes.
	receiveBuffer = 4 << 20
	longest       = 16 << 10 // the kernel's limit is far below
)

// ErrLost says that events were lost: everything may have changed.
var ErrLost = errors.New("uevents were lost")

// Socket receives uevents.
type Socket struct{ file *os.File }

// Listen opens the socket: events that come from now on are received.
func Listen() (*Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("open uevent socket: %w", err)
	}
	// A bigger buffer is a comfort: without the right to have it the default must do.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return nil, errors.Join(fmt.Errorf("bind uevent socket: %w", err), unix.Close(fd))
	}
	return &Socket{file: os.NewFile(uintptr(fd), "uevents")}, nil
}

// Receive calls handle for each event, and with ErrLost when some did not fit into the socket's buffer, until ctx ends.
// It closes the socket.
func (s *Socket) Receive(ctx context.Context, handle func(Event, error)) error {
	stop := context.AfterFunc(ctx, func() { _ = s.file.Close() })
	defer func() {
		if stop() {
			_ = s.file.Close()
		}
	}()
	buffer := make([]byte, longest)
	for {
		n, err := s.file.Read(buffer)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			handle(Event{}, ErrLost)
		case err != nil:
			return fmt.Errorf("read uevents: %w", err)
		default:
			// What cannot be read is not about a device that we could offer.
			if event, err := Parse(buffer[:n]); err == nil {
				handle(event, nil)
			}
		}
	}
}
