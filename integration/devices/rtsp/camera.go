// Package rtsp runs cameras: GStreamer's RTSP server with a moving test picture that contains the
// time and the number of the camera. It reads both, also from a page that shows the cameras.
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
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

//go:embed server.py
var server string

// python is that of Debian, which has the binding of GStreamer.
const python = "/usr/bin/python3"

// cameras is the number of cameras that were started.
var cameras atomic.Uint32

// Camera is a running RTSP server.
type Camera struct {
	Port    int
	number  byte // in its pictures
	command *exec.Cmd

	mu         sync.Mutex
	transports []string // tcp or udp, of the sessions that began
	open       int
}

// Start starts a camera. The arguments are those of server.py. wrap are words before its command
// line, such as those that run it in a network namespace.
func Start(ctx context.Context, wrap []string, arguments ...string) (*Camera, error) {
	number := byte(cameras.Add(1))
	line := append(append([]string{}, wrap...), python, "-c", server, "--number", strconv.Itoa(int(number)))
	line = append(line, arguments...)
	command := exec.CommandContext(ctx, line[0], line[1:]...)
	command.Stderr = os.Stderr
	output, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	c := &Camera{number: number, command: command}
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
		if transport, begins := strings.CutPrefix(strings.TrimSpace(line), "session begins "); begins {
			c.transports, c.open = append(c.transports, transport), c.open+1
		} else if strings.HasPrefix(line, "session ends") {
			c.open--
		}
		c.mu.Unlock()
	}
}

// URL returns the address of the stream on the host.
func (c *Camera) URL(host string) string { return fmt.Sprintf("rtsp://%s:%d/stream", host, c.Port) }

// Sessions returns the transports of the sessions of clients that have begun, "tcp" or "udp", and
// how many of these are open.
func (c *Camera) Sessions() (transports []string, open int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.transports), c.open
}

// Stop ends the camera as if its power was cut.
func (c *Camera) Stop() error {
	if err := c.command.Process.Kill(); err != nil {
		return err
	}
	_ = c.command.Wait() // it was killed
	return nil
}

const (
	// width of the pictures in pixels, if the camera has no other.
	width = 640
	// square is the size of the squares of the clock in pixels.
	square = 16
)

// Time returns when the picture was made. It returns an error if the camera has not made it. The
// picture can have another size than the camera's.
func (c *Camera) Time(picture image.Image) (time.Time, error) {
	bounds := picture.Bounds()
	scale := float64(bounds.Dx()) / width
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
	if number := byte(bits ^ bits>>8 ^ bits>>16 ^ bits>>24 ^ bits>>32); number != c.number {
		return time.Time{}, fmt.Errorf("the picture is damaged or of another camera: %010x, number %d instead of %d", bits, number, c.number)
	}
	return complete(milliseconds, time.Now()), nil
}

// complete returns the time that is closest to the present and has these lower bits in its
// milliseconds.
func complete(milliseconds uint32, present time.Time) time.Time {
	now := present.UnixMilli()
	return time.UnixMilli(now + int64(int32(milliseconds-uint32(now))))
}
