package broker

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode"
)

const (
	// deviceVariable begins the name of each variable that holds a device node.
	deviceVariable = "UDEV_DEVNODE"
	readSize       = 64
	// readTimeout bounds the wait for a device that has nothing to say, such as
	// a serial port. Disks and memory answer at once.
	readTimeout = time.Second
)

// Device is one device node and what its first bytes are.
type Device struct {
	// Env is the variable that named it.
	Env string `json:"env"`
	// Path is the device node.
	Path string `json:"path"`
	// BytesRead is how many bytes came, 64 at most.
	BytesRead int `json:"bytesRead"`
	// Content holds those bytes, with a dot for each that cannot be printed.
	Content string `json:"content"`
	// Error says why the device could not be read; empty when it could.
	Error string `json:"error,omitempty"`
}

func readAll(properties map[string]string) []Device {
	devices := []Device{}
	for key, path := range properties {
		if strings.HasPrefix(key, deviceVariable) {
			devices = append(devices, Read(key, path))
		}
	}
	slices.SortFunc(devices, func(a, b Device) int { return cmp.Compare(a.Env, b.Env) })
	return devices
}

// Read opens the device and reads from its start. It never waits longer than a second.
func Read(env, path string) Device {
	device := Device{Env: env, Path: path}
	content, err := head(path)
	if err != nil {
		device.Error = err.Error()
	}
	device.BytesRead, device.Content = len(content), printable(content)
	return device
}

// head opens without blocking: opening a serial port otherwise waits for its carrier.
func head(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if err := file.SetReadDeadline(time.Now().Add(readTimeout)); err != nil && !errors.Is(err, os.ErrNoDeadline) {
		return nil, fmt.Errorf("bound read: %w", err)
	}
	content := make([]byte, readSize)
	n, err := io.ReadFull(file, content)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return content[:n], err
}

func printable(content []byte) string {
	return strings.Map(func(r rune) rune {
		if r < unicode.MaxASCII && unicode.IsPrint(r) {
			return r
		}
		return '.'
	}, string(latin(content)))
}

// latin gives each byte a character of its own, so that none is lost.
func latin(content []byte) []rune {
	runes := make([]rune, len(content))
	for i, b := range content {
		runes[i] = rune(b)
	}
	return runes
}
