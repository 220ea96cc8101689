// Package v4l2 captures frames from cameras with the kernel's interface Video4Linux
// (https://docs.kernel.org/userspace-api/media/v4l/v4l2.html).
package v4l2

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	bufferCount = 4
	// pollTimeout limits the time to notice the end of the context.
	pollTimeout = 200 * time.Millisecond
	// frameTimeout ends the capture. Some cameras need seconds for their first frame.
	frameTimeout = 10 * time.Second
)

// PixelFormat is the four-character code of an encoding of images.
type PixelFormat [4]byte

func (f PixelFormat) String() string { return strings.TrimRight(string(f[:]), " ") }

// Pixel formats.
var (
	MJPG = PixelFormat([]byte("MJPG")) // a JPEG image, possibly without Huffman tables
	YUYV = PixelFormat([]byte("YUYV")) // YCbCr 4:2:2, two bytes a pixel
)

// Format of the frames of a camera.
type Format struct {
	Pixels        PixelFormat
	Width, Height int
	BytesPerLine  int // 0 for compressed formats
}

// Device is an open camera.
type Device struct {
	fd int
}

// Open opens the device node of a camera. The caller closes the Device.
func Open(path string) (*Device, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	d := &Device{fd: fd}
	if err := d.check(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), d.Close())
	}
	return d, nil
}

// Close closes the device.
func (d *Device) Close() error { return unix.Close(d.fd) }

func (d *Device) check() error {
	var c capability
	if err := ioctl(d.fd, queryCap, &c); err != nil {
		return err
	}
	capabilities := c.capabilities
	if capabilities&capDeviceCaps != 0 {
		capabilities = c.deviceCaps // of this device node; a camera may have several
	}
	if capabilities&capVideoCapture == 0 || capabilities&capStreaming == 0 {
		return errors.New("the device does not capture video")
	}
	return nil
}

// PixelFormats returns the pixel formats that the camera offers.
func (d *Device) PixelFormats() ([]PixelFormat, error) {
	var formats []PixelFormat
	for {
		description := formatDescription{index: uint32(len(formats)), kind: bufVideoCapture}
		err := ioctl(d.fd, enumFormat, &description)
		if errors.Is(err, unix.EINVAL) {
			return formats, nil
		}
		if err != nil || slices.Contains(formats, description.pixels) {
			return formats, err
		}
		formats = append(formats, description.pixels)
	}
}

// Configure sets the format and the frame rate, and returns the format of the frames. The camera
// chooses the size and the rate that are closest to those requested.
func (d *Device) Configure(pixels PixelFormat, width, height, framesPerSecond int) (Format, error) {
	image := imageFormat{kind: bufVideoCapture, width: uint32(width), height: uint32(height), pixels: pixels}
	if err := ioctl(d.fd, setFormat, &image); err != nil {
		return Format{}, err
	}
	if image.pixels != pixels {
		return Format{}, fmt.Errorf("the camera chose the format %s instead of %s", image.pixels, pixels)
	}
	parameters := streamParameters{kind: bufVideoCapture, numerator: 1, denominator: uint32(framesPerSecond)}
	if err := ioctl(d.fd, setParams, &parameters); err != nil && !errors.Is(err, unix.ENOTTY) { // it has only one rate
		return Format{}, err
	}
	return Format{Pixels: pixels, Width: int(image.width), Height: int(image.height), BytesPerLine: int(image.bytesPerLine)}, nil
}

// Capture calls receive with each frame until the context ends. The frame is valid until receive
// returns.
func (d *Device) Capture(ctx context.Context, receive func(frame []byte)) (err error) {
	memory, err := d.mapBuffers()
	defer func() { err = errors.Join(err, unmap(memory)) }()
	if err != nil {
		return err
	}
	kind := uint32(bufVideoCapture)
	if err := ioctl(d.fd, streamOn, &kind); err != nil {
		return err
	}
	defer func() { _ = ioctl(d.fd, streamOff, &kind) }() // fails if the camera was unplugged
	last := time.Now()
	for ctx.Err() == nil {
		received, err := d.next(memory, receive)
		if err != nil {
			return err
		}
		if received {
			last = time.Now()
		} else if time.Since(last) > frameTimeout {
			return fmt.Errorf("the camera sent no frame for %v", frameTimeout)
		}
	}
	return nil
}

// next waits for a frame for a short time.
func (d *Device) next(memory [][]byte, receive func(frame []byte)) (received bool, err error) {
	events := []unix.PollFd{{Fd: int32(d.fd), Events: unix.POLLIN}}
	if _, err := unix.Poll(events, int(pollTimeout.Milliseconds())); err != nil && !errors.Is(err, unix.EINTR) {
		return false, fmt.Errorf("poll: %w", err)
	}
	filled := buffer{kind: bufVideoCapture, memory: memoryMmap}
	if err := ioctl(d.fd, dequeueBuf, &filled); err != nil {
		if errors.Is(err, unix.EAGAIN) {
			err = nil
		}
		return false, err
	}
	if filled.flags&bufFlagError == 0 { // otherwise the frame is damaged
		receive(memory[filled.index][:filled.bytesUsed])
		received = true
	}
	return received, ioctl(d.fd, queueBuf, &buffer{index: filled.index, kind: bufVideoCapture, memory: memoryMmap})
}

// mapBuffers maps the buffers of the device into memory and queues them. The caller unmaps them,
// also after an error.
func (d *Device) mapBuffers() (memory [][]byte, err error) {
	buffers := bufferRequest{count: bufferCount, kind: bufVideoCapture, memory: memoryMmap}
	if err := ioctl(d.fd, requestBuf, &buffers); err != nil {
		return nil, err
	}
	for i := range buffers.count {
		b := buffer{index: i, kind: bufVideoCapture, memory: memoryMmap}
		if err := ioctl(d.fd, queryBuf, &b); err != nil {
			return memory, err
		}
		mapped, err := unix.Mmap(d.fd, int64(b.offset), int(b.length), unix.PROT_READ, unix.MAP_SHARED)
		if err != nil {
			return memory, fmt.Errorf("map buffer: %w", err)
		}
		memory = append(memory, mapped)
		if err := ioctl(d.fd, queueBuf, &b); err != nil {
			return memory, err
		}
	}
	return memory, nil
}

func unmap(memory [][]byte) error {
	var errs []error
	for _, mapped := range memory {
		errs = append(errs, unix.Munmap(mapped))
	}
	return errors.Join(errs...)
}
