package broker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// devicePrefix is the prefix of the variables that contain the path of a device node.
	devicePrefix = "UDEV_DEVNODE"
	readSize     = 64
	// readTimeout limits reads from devices without data, such as serial ports.
	readTimeout = time.Second
)

// Device is a device node and its first bytes.
type Device struct {
	// Env is the environment variable with the path.
	Env string `json:"env"`
	// Path of the device node.
	Path string `json:"path"`
	// BytesRead is the number of bytes read, at most 64.
	BytesRead int `json:"bytesRead"`
	// Content contains these bytes, with a dot for each byte that is not printable.
	Content string `json:"content"`
	// Error of the read; empty if it succeeded.
	Error string `json:"error,omitempty"`
}

func readAll(properties map[string]string) []Device {
	devices := []Device{}
	for _, key := range slices.Sorted(maps.Keys(properties)) {
		if strings.HasPrefix(key, devicePrefix) {
			devices = append(devices, Read(key, properties[key]))
		}
	}
	return devices
}

// Read opens the device and reads from its start, for at most one second.
func Read(env, path string) Device {
	device := Device{Env: env, Path: path}
	content, err := head(path)
	if err != nil {
		device.Error = err.Error()
	}
	device.BytesRead, device.Content = len(content), printable(content)
	return device
}

// head returns the first bytes. It opens the device with O_NONBLOCK, because opening a serial port
// waits for the carrier signal otherwise, and with O_NOCTTY, because a byte that the port receives
// could end the process otherwise.
func head(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	if err := file.SetReadDeadline(time.Now().Add(readTimeout)); err != nil && !errors.Is(err, os.ErrNoDeadline) {
		return nil, fmt.Errorf("set read deadline: %w", err)
	}
	content := make([]byte, readSize)
	n, err := io.ReadFull(file, content)
	// A serial port sends fewer bytes in this time.
	if n > 0 || errors.Is(err, io.EOF) {
		err = nil
	}
	return content[:n], err
}

func printable(content []byte) string {
	text := bytes.Clone(content)
	for i, b := range text {
		if b < ' ' || b > '~' {
			text[i] = '.'
		}
	}
	return string(text)
}
