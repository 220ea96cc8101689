package devices

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// kernelGroup is the netlink group in which the kernel itself sends uevents.
const kernelGroup = 1

// UeventSocket receives the kernel's uevents.
type UeventSocket struct{ fd int }

// Uevents opens a socket; what the kernel sends from now on waits in it.
func Uevents() (*UeventSocket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_KOBJECT_UEVENT)
	if err != nil {
		return nil, fmt.Errorf("open uevent socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: kernelGroup}); err != nil {
		return nil, errors.Join(fmt.Errorf("bind uevent socket: %w", err), unix.Close(fd))
	}
	// The kernel's stamp, not ours: a message may wait in the socket before it is read.
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
		return nil, errors.Join(fmt.Errorf("ask for time stamps: %w", err), unix.Close(fd))
	}
	timeout := unix.NsecToTimeval(int64(100 * time.Millisecond))
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		return nil, errors.Join(fmt.Errorf("set receive timeout: %w", err), unix.Close(fd))
	}
	return &UeventSocket{fd: fd}, nil
}

// Close closes the socket.
func (s *UeventSocket) Close() { _ = unix.Close(s.fd) }

// Await returns when the kernel sent the action for the device, dropping other events.
func (s *UeventSocket) Await(ctx context.Context, action, devPath string) (time.Time, error) {
	message, control := make([]byte, 16<<10), make([]byte, 256)
	want := []byte(action + "@" + devPath + "\x00")
	for ctx.Err() == nil {
		n, controlled, _, _, err := unix.Recvmsg(s.fd, message, control, 0)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		case err != nil:
			return time.Time{}, fmt.Errorf("receive uevent: %w", err)
		case bytes.HasPrefix(message[:n], want):
			return stamp(control[:controlled])
		}
	}
	return time.Time{}, fmt.Errorf("wait for uevent %s of %s: %w", action, devPath, ctx.Err())
}

func stamp(control []byte) (time.Time, error) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return time.Time{}, fmt.Errorf("read time stamp: %w", err)
	}
	for _, message := range messages {
		if message.Header.Level == unix.SOL_SOCKET && message.Header.Type == unix.SCM_TIMESTAMPNS && len(message.Data) >= 16 {
			seconds, nanoseconds := int64(native(message.Data[:8])), int64(native(message.Data[8:16]))
			return time.Unix(seconds, nanoseconds), nil
		}
	}
	return time.Now(), nil // netlink of old kernels does not stamp
}

func native(data []byte) uint64 { return binary.NativeEndian.Uint64(data) }
