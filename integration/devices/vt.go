package devices

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

const vtOpenQuery = 0x5600 // VT_OPENQRY of linux/vt.h

// VT is a virtual terminal that no process used. Like a serial line it is a terminal device, whose
// input processes read.
type VT struct {
	number   int
	terminal *os.File
}

// OpenVT opens an unused virtual terminal.
func OpenVT() (*VT, error) {
	console, err := os.OpenFile("/dev/tty0", os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("open console: %w", err)
	}
	defer console.Close()
	v := &VT{}
	if v.number, err = unix.IoctlGetInt(int(console.Fd()), vtOpenQuery); err != nil {
		return nil, fmt.Errorf("find an unused terminal: %w", err)
	}
	if v.terminal, err = os.OpenFile(v.Node(), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, fmt.Errorf("open terminal: %w", err)
	}
	return v, nil
}

// Name is the kernel's name, tty<n>.
func (v *VT) Name() string { return "tty" + strconv.Itoa(v.number) }

// Node is the device node, /dev/tty<n>.
func (v *VT) Node() string { return "/dev/" + v.Name() }

// Send makes the terminal receive the line.
func (v *VT) Send(line string) error {
	for _, b := range []byte(line + "\n") {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, v.terminal.Fd(), unix.TIOCSTI, uintptr(unsafe.Pointer(&b))); errno != 0 {
			return fmt.Errorf("send to %s: %w", v.Name(), errno)
		}
	}
	return nil
}

// Close closes the terminal.
func (v *VT) Close() error { return v.terminal.Close() }

// Share sets the group and mode of a device node as udev does. The function that it returns
// restores them.
func Share(node string, group int) (restore func() error, err error) {
	var before unix.Stat_t
	if err := unix.Stat(node, &before); err != nil {
		return nil, fmt.Errorf("stat %s: %w", node, err)
	}
	set := func(group int, mode os.FileMode) error {
		return errors.Join(os.Chown(node, int(before.Uid), group), os.Chmod(node, mode))
	}
	return func() error { return set(int(before.Gid), os.FileMode(before.Mode&0o777)) }, set(group, 0o660)
}
