// Package camera emulates a camera for containers, because the kernels of test machines have no
// driver for video. The device node is a loop device, whose memory containers map like that of a
// camera. The ioctls of Video4Linux are answered by this process: the seccomp profile of a
// container passes them on (seccomp_unotify(2)). umockdev, which preloads a library, cannot emulate
// a device for programs without the C library.
package camera

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	bufferSize = 64 << 10
	maxBuffers = 8
	// frameTime is the time between two frames.
	frameTime = 100 * time.Millisecond
)

// Camera sends images in turn.
type Camera struct {
	Width, Height int
	images        [][]byte
	loop          *loop
	serving       sync.WaitGroup
}

// Plug adds a camera that sends the images in turn, in the format MJPG.
func Plug(ctx context.Context, images [][]byte, width, height int) (*Camera, error) {
	for _, image := range images {
		if len(image) > bufferSize {
			return nil, fmt.Errorf("an image has %d bytes, more than %d", len(image), bufferSize)
		}
	}
	loop, err := addLoop(ctx, maxBuffers*bufferSize)
	if err != nil {
		return nil, err
	}
	return &Camera{Width: width, Height: height, images: images, loop: loop}, nil
}

// Node is the device node.
func (c *Camera) Node() string { return c.loop.path() }

// Unplug removes the camera after the end of all containers that use it.
func (c *Camera) Unplug(ctx context.Context) error {
	c.serving.Wait()
	return c.loop.remove(ctx)
}

// Profile returns a seccomp profile for containers that use the camera. They can run on the node on
// which Serve listens at the path.
func Profile(path string) string {
	return fmt.Sprintf(`{
  "defaultAction": "SCMP_ACT_ALLOW",
  "listenerPath": %q,
  "syscalls": [{
    "names": ["ioctl"],
    "action": "SCMP_ACT_NOTIFY",
    "args": [{"index": 1, "value": %d, "valueTwo": %d, "op": "SCMP_CMP_MASKED_EQ"}]
  }]
}`, path, 0xFF00, 'V'<<8)
}

// Serve answers the containers until the listener is closed.
func (c *Camera) Serve(listener *net.UnixListener) error {
	for {
		connection, err := listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		file, err := receiveFile(connection)
		_ = connection.Close()
		if err != nil {
			return err
		}
		c.serving.Go(func() { c.serve(file) })
	}
}

func (c *Camera) serve(file *os.File) {
	defer file.Close()
	s := &session{camera: c, frames: time.NewTicker(frameTime)}
	defer s.frames.Stop()
	if err := answer(file, s.ioctl); err != nil {
		fmt.Fprintln(os.Stderr, "emulate camera:", err)
	}
}

// session is the use of the camera by one container.
type session struct {
	camera *Camera
	queued []uint32
	frames *time.Ticker
	sent   int
}

// Offsets in the structures of linux/videodev2.h, by ioctl.
func (s *session) ioctl(request uint32, argument []byte) error {
	switch request & 0xFF {
	case 0: // VIDIOC_QUERYCAP
		put(argument, 84, 0x84200001) // capture, streaming, device capabilities
		put(argument, 88, 0x04200001)
	case 2: // VIDIOC_ENUM_FMT
		formats := []string{"H264", "MJPG"}
		i := int(index(argument))
		if i >= len(formats) {
			return unix.EINVAL
		}
		copy(argument[44:], formats[i])
	case 5: // VIDIOC_S_FMT
		put(argument, 8, uint32(s.camera.Width))
		put(argument, 12, uint32(s.camera.Height))
		copy(argument[16:], "MJPG")
	case 8: // VIDIOC_REQBUFS
		put(argument, 0, min(index(argument), maxBuffers))
	case 9: // VIDIOC_QUERYBUF
		put(argument, 64, index(argument)*bufferSize)
		put(argument, 72, bufferSize)
	case 15: // VIDIOC_QBUF
		s.queued = append(s.queued, index(argument))
	case 17: // VIDIOC_DQBUF
		return s.dequeue(argument)
	case 18, 19, 22: // VIDIOC_STREAMON, VIDIOC_STREAMOFF, VIDIOC_S_PARM
	default:
		return unix.ENOTTY
	}
	return nil
}

// dequeue waits for the next frame, because a loop device is always ready for poll.
func (s *session) dequeue(argument []byte) error {
	if len(s.queued) == 0 {
		return unix.EAGAIN
	}
	<-s.frames.C
	next := s.queued[0]
	s.queued = s.queued[1:]
	image := s.camera.images[s.sent%len(s.camera.images)]
	s.sent++
	if _, err := s.camera.loop.node.WriteAt(image, int64(next)*bufferSize); err != nil {
		return err
	}
	put(argument, 0, next)
	put(argument, 8, uint32(len(image)))
	return nil
}
