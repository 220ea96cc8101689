package v4l2

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The constants and structures are those of linux/videodev2.h. On 32-bit machines, pointers in
// unions have 4 bytes, and the times are those of VIDIOC_QUERYBUF_TIME32, which all kernels know.
const (
	capVideoCapture = 0x00000001
	capStreaming    = 0x04000000
	capDeviceCaps   = 0x80000000
	bufVideoCapture = 1
	bufFlagError    = 0x40
	memoryMmap      = 1
)

// pointerPadding is the number of bytes by which a pointer is longer than 4.
const pointerPadding = unsafe.Sizeof(uintptr(0)) - 4

// request is an ioctl of Video4Linux.
type request struct {
	name      string
	direction uint
	number    uint
}

const (
	write = 1
	read  = 2
)

var (
	queryCap   = request{"VIDIOC_QUERYCAP", read, 0}
	enumFormat = request{"VIDIOC_ENUM_FMT", read | write, 2}
	setFormat  = request{"VIDIOC_S_FMT", read | write, 5}
	requestBuf = request{"VIDIOC_REQBUFS", read | write, 8}
	queryBuf   = request{"VIDIOC_QUERYBUF", read | write, 9}
	queueBuf   = request{"VIDIOC_QBUF", read | write, 15}
	dequeueBuf = request{"VIDIOC_DQBUF", read | write, 17}
	streamOn   = request{"VIDIOC_STREAMON", write, 18}
	streamOff  = request{"VIDIOC_STREAMOFF", write, 19}
	setParams  = request{"VIDIOC_S_PARM", read | write, 22}
)

type capability struct {
	_            [84]byte
	capabilities uint32
	deviceCaps   uint32
	_            [3]uint32
}

type formatDescription struct {
	index  uint32
	kind   uint32
	_      [36]byte
	pixels PixelFormat
	_      [4]uint32
}

type imageFormat struct {
	kind         uint32
	_            [pointerPadding]byte // the union after it has pointers
	width        uint32
	height       uint32
	pixels       PixelFormat
	_            uint32
	bytesPerLine uint32
	_            [180]byte
}

type bufferRequest struct {
	count  uint32
	kind   uint32
	memory uint32
	_      [2]uint32
}

type buffer struct {
	index     uint32
	kind      uint32
	bytesUsed uint32
	flags     uint32
	_         uint32
	_         unix.Timeval
	_         [16]byte
	_         uint32
	memory    uint32
	offset    uint32
	_         [pointerPadding]byte
	length    uint32
	_         [2]uint32
}

type streamParameters struct {
	kind        uint32
	_           [2]uint32
	numerator   uint32
	denominator uint32
	_           [184]byte
}

// The size is part of the number of a request. A wrong one does not compile, also for machines on
// which no test runs.
var (
	_ [204 + pointerPadding]byte  = [unsafe.Sizeof(imageFormat{})]byte{}
	_ [68 + 5*pointerPadding]byte = [unsafe.Sizeof(buffer{})]byte{}
)

// ioctl passes the argument to the device, which may change it.
func ioctl[T any](fd int, r request, argument *T) error {
	number := r.direction<<30 | uint(unsafe.Sizeof(*argument))<<16 | 'V'<<8 | r.number
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(number), uintptr(unsafe.Pointer(argument))) //nolint:gosec // the kernel's interface
		switch {
		case errno == 0:
			return nil
		case !errors.Is(errno, unix.EINTR):
			return fmt.Errorf("%s: %w", r.name, errno)
		}
	}
}
