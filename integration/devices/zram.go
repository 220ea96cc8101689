// Package devices plugs real devices in and out on this machine.
package devices

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	zramControl  = "/sys/class/zram-control"
	zramDiskSize = "1M"
	retryPause   = 20 * time.Millisecond
)

// ErrNoZram is returned if the kernel cannot plug in zram devices.
var ErrNoZram = errors.New("the kernel has no zram hot-plug (" + zramControl + ")")

// Zram is a block device in memory, with the same uevents as other block devices.
type Zram struct {
	number    int
	unplugged bool
	Content   string
}

// PlugZram plugs in a zram device that begins with the content. It is never zram0, which many
// machines use for swap and which the rules of samples and tests do not match.
func PlugZram(ctx context.Context, content string) (*Zram, error) {
	z, err := hotAdd()
	if err != nil {
		return nil, err
	}
	if z.number == 0 {
		zero := z
		z, err = hotAdd()
		if err := errors.Join(err, zero.Unplug(ctx)); err != nil {
			return nil, err
		}
	}
	z.Content = content
	if err := z.fill(); err != nil {
		return nil, errors.Join(err, z.Unplug(ctx))
	}
	return z, nil
}

// hotAdd adds a device. Reading the file adds it and returns its number.
func hotAdd() (*Zram, error) {
	if _, err := os.Stat(zramControl); err != nil {
		_ = exec.Command("modprobe", "zram").Run() // the next line checks the result
	}
	text, err := os.ReadFile(filepath.Join(zramControl, "hot_add"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, ErrNoZram
	}
	if err != nil {
		return nil, fmt.Errorf("plug in zram device: %w", err)
	}
	number, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return nil, fmt.Errorf("read number of zram device: %w", err)
	}
	return &Zram{number: number}, nil
}

func (z *Zram) fill() error {
	if err := os.WriteFile(z.sys("disksize"), []byte(zramDiskSize), 0o200); err != nil {
		return fmt.Errorf("set size of %s: %w", z.Node(), err)
	}
	node, err := os.OpenFile(z.Node(), os.O_WRONLY|syscall.O_SYNC, 0)
	if err != nil {
		return fmt.Errorf("open device: %w", err)
	}
	// Block devices are written in full blocks.
	block := make([]byte, 4096)
	copy(block, z.Content)
	_, err = node.Write(block)
	return errors.Join(err, node.Close())
}

// Name is the kernel's name, zram<n>.
func (z *Zram) Name() string { return "zram" + strconv.Itoa(z.number) }

// Node is the device node, /dev/zram<n>.
func (z *Zram) Node() string { return "/dev/" + z.Name() }

// DevPath is the path in sysfs without /sys.
func (z *Zram) DevPath() string { return "/devices/virtual/block/" + z.Name() }

func (z *Zram) sys(attribute string) string { return "/sys" + z.DevPath() + "/" + attribute }

// Unplug removes the device, if it did not yet. It retries while a process has the device open.
func (z *Zram) Unplug(ctx context.Context) error {
	for !z.unplugged {
		err := os.WriteFile(filepath.Join(zramControl, "hot_remove"), []byte(strconv.Itoa(z.number)), 0o200)
		if !errors.Is(err, syscall.EBUSY) {
			if err != nil {
				return fmt.Errorf("unplug %s: %w", z.Name(), err)
			}
			z.unplugged = true
			continue
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("unplug %s: %w", z.Name(), err)
		case <-time.After(retryPause):
		}
	}
	return nil
}
