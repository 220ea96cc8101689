package camera

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notification is struct seccomp_notif: a system call that waits for a response.
type notification struct {
	id, pid   uint64 // and flags, in the upper half of pid
	number    int32
	_         uint32
	_         uint64
	arguments [6]uint64
}

// response is struct seccomp_notif_resp.
type response struct {
	id    uint64
	value int64
	errno int32
	_     uint32
}

// receiveFile returns the file that the container runtime sends when a container starts.
func receiveFile(connection *net.UnixConn) (*os.File, error) {
	state, control := make([]byte, 64<<10), make([]byte, unix.CmsgSpace(8*4))
	_, n, _, _, err := connection.ReadMsgUnix(state, control)
	if err != nil {
		return nil, fmt.Errorf("read from the container runtime: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(control[:n])
	if err != nil || len(messages) != 1 {
		return nil, fmt.Errorf("%d control messages of the container runtime: %w", len(messages), err)
	}
	files, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(files) != 1 {
		return nil, fmt.Errorf("%d files of the container runtime: %w", len(files), err)
	}
	return os.NewFile(uintptr(files[0]), "seccomp"), nil
}

// answer answers the ioctls of a container until it has ended.
func answer(file *os.File, ioctl func(request uint32, argument []byte) error) error {
	for {
		events := []unix.PollFd{{Fd: int32(file.Fd()), Events: unix.POLLIN}}
		if _, err := unix.Poll(events, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return fmt.Errorf("poll: %w", err)
		}
		if events[0].Revents&unix.POLLIN == 0 {
			return nil // no process uses the filter
		}
		var n notification
		if err := control(file, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&n)); err != nil {
			continue // the process was killed
		}
		r := response{id: n.id}
		var errno unix.Errno
		if err := answerOne(n, ioctl); errors.As(err, &errno) {
			r.errno = -int32(errno)
		} else if err != nil {
			return err
		}
		_ = control(file, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&r)) // the process may be killed
	}
}

// answerOne passes the argument from the memory of the process to ioctl and back.
func answerOne(n notification, ioctl func(request uint32, argument []byte) error) error {
	request, address := uint32(n.arguments[1]), uintptr(n.arguments[2])
	argument := make([]byte, request>>16&0x3FFF)
	local := []unix.Iovec{{Base: &argument[0], Len: uint64(len(argument))}}
	remote := []unix.RemoteIovec{{Base: address, Len: len(argument)}}
	pid := int(uint32(n.pid))
	if _, err := unix.ProcessVMReadv(pid, local, remote, 0); err != nil {
		return err
	}
	if err := ioctl(request, argument); err != nil {
		return err
	}
	_, err := unix.ProcessVMWritev(pid, local, remote, 0)
	return err
}

func control(file *os.File, request uintptr, argument unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, file.Fd(), request, uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}

// index returns the first field of a structure.
func index(argument []byte) uint32 { return binary.NativeEndian.Uint32(argument) }

func put(argument []byte, offset int, value uint32) {
	binary.NativeEndian.PutUint32(argument[offset:], value)
}
