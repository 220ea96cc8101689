package camera

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

const retryPause = 10 * time.Millisecond

// loop is a new loop device. Containers can map its memory, like that of a camera.
type loop struct {
	number int
	node   *os.File
}

// addLoop adds a loop device of the given size.
func addLoop(ctx context.Context, size int64) (*loop, error) {
	number, err := controlLoops(unix.LOOP_CTL_ADD, -1) // the lowest free number
	if err != nil {
		return nil, fmt.Errorf("add loop device: %w", err)
	}
	l := &loop{number: number}
	if l.node, err = os.OpenFile(l.path(), os.O_RDWR, 0); err == nil {
		err = l.attach(size)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("configure %s: %w", l.path(), err), l.remove(ctx))
	}
	return l, nil
}

func (l *loop) path() string { return "/dev/loop" + strconv.Itoa(l.number) }

// attach makes the device return the content of anonymous memory.
func (l *loop) attach(size int64) error {
	fd, err := unix.MemfdCreate("camera", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }() // the device keeps the memory
	if err := unix.Ftruncate(fd, size); err != nil {
		return err
	}
	return unix.IoctlLoopConfigure(int(l.node.Fd()), &unix.LoopConfig{Fd: uint32(fd)})
}

// remove removes the device. It retries while a process has the device open, as each child of this
// process has until it executes its program.
func (l *loop) remove(ctx context.Context) error {
	var errs []error
	if l.node != nil {
		errs = append(errs, unix.IoctlSetInt(int(l.node.Fd()), unix.LOOP_CLR_FD, 0), l.node.Close())
	}
	for {
		_, err := controlLoops(unix.LOOP_CTL_REMOVE, l.number)
		if !errors.Is(err, unix.EBUSY) {
			return errors.Join(append(errs, err)...)
		}
		select {
		case <-ctx.Done():
			return errors.Join(append(errs, fmt.Errorf("remove %s: %w", l.path(), err))...)
		case <-time.After(retryPause):
		}
	}
}

func controlLoops(request uintptr, number int) (int, error) {
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return 0, err
	}
	defer control.Close()
	result, _, errno := unix.Syscall(unix.SYS_IOCTL, control.Fd(), request, uintptr(number))
	if errno != 0 {
		return 0, errno
	}
	return int(result), nil
}
