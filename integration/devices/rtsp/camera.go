// Package rtsp runs cameras: GStreamer's RTSP server with a moving test picture that contains the
// time.
package rtsp

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"image"

	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"
)

//go:embed server.py
var server string

// python is that of Debian, which has the binding of GStreamer.
const python = "/usr/bin/python3"

// Camera is a running RTSP server.
type Camera struct {
	Port    int
	command *exec.Cmd

	mu       sync.Mutex
	sessions int // that began
	open     int
}

// Start starts a camera. The arguments are those of server.py. wrap are words before its command
// line, such as those that run it in a network namespace.
func Start(ctx context.Context, wrap []string, arguments ...string) (*Camera, error) {
	line := append(append(append([]string{}, wrap...), python, "-c", server), arguments...)
	command := exec.CommandContext(ctx, line[0], line[1:]...)
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	c := &Camera{command: command}
	lines := bufio.NewReader(output)
	first, err := lines.ReadString('\n')
	if err == nil {
		c.Port, err = strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(first, "ready")))
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("the RTSP server does not start: %w", err), c.Stop())
	}
	go c.read(lines)
	return c, nil
}

func (c *Camera) read(lines *bufio.Reader) {
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		c.mu.Lock()
		switch strings.TrimSpace(line) {
		case "session begins":
			c.sessions, c.open = c.sessions+1, c.open+1
		case "session ends":
			c.open--
		}
		c.mu.Unlock()
	}
}

// URL returns the address of the stream on the host.
func (c *Camera) URL(host string) string { return fmt.Sprintf("rtsp://%s:%d/stream", host, c.Port) }

// Sessions returns how many sessions have begun, and how many of them are open.
func (c *Camera) Sessions() (begun, open int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sessions, c.open
}

// Stop ends the camera as if its power was cut.
func (c *Camera) Stop() error {
	if err := c.command.Process.Kill(); err != nil {
		return err
	}
	_ = c.command.Wait() // it was killed
	return nil
}

// square is the size of the squares of the clock in pixels.
const square = 16

// Time returns when the picture was made. It can have another size than the camera's.
func Time(picture image.Image, width int) (time.Time, error) {
	bounds := picture.Bounds()
	scale := float64(bounds.Dx()) / float64(width)
	var bits uint64
	for i := range 40 {
		x := bounds.Min.X + int((float64(i)+0.5)*square*scale)
		y := bounds.Min.Y + int(square/2*scale)
		r, g, b, _ := picture.At(x, y).RGBA()
		bits <<= 1
		if (r+g+b)/3 > 0x7FFF {
			bits |= 1
		}
	}
	milliseconds := uint32(bits >> 8)
	if check := byte(milliseconds ^ milliseconds>>8 ^ milliseconds>>16 ^ milliseconds>>24); check != byte(bits) {
		return time.Time{}, fmt.Errorf("the picture has no clock: %010x", bits)
	}
	// The high bits are those of the present.
	now := time.Now().UnixMilli()
	made := now&^0xFFFFFFFF | int64(milliseconds)
	if made > now+1<<31 {
		made -= 1 << 32
	}
	return time.UnixMilli(made), nil
}
