package v4l2

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestSizes compares sizes and offsets in the structures with linux/videodev2.h on 64-bit and
// 32-bit machines, as C compilers for x86-64, ARM64 and 32-bit ARM compute them. The size is part
// of the number of a request.
func TestSizes(t *testing.T) {
	for name, c := range map[string]struct{ got, bits64, bits32 uintptr }{
		"v4l2_capability":     {unsafe.Sizeof(capability{}), 104, 104},
		"v4l2_fmtdesc":        {unsafe.Sizeof(formatDescription{}), 64, 64},
		"v4l2_format":         {unsafe.Sizeof(imageFormat{}), 208, 204},
		"v4l2_format.fmt":     {unsafe.Offsetof(imageFormat{}.width), 8, 4},
		"v4l2_requestbuffers": {unsafe.Sizeof(bufferRequest{}), 20, 20},
		"v4l2_buffer":         {unsafe.Sizeof(buffer{}), 88, 68},
		"v4l2_buffer.memory":  {unsafe.Offsetof(buffer{}.memory), 60, 48},
		"v4l2_buffer.m":       {unsafe.Offsetof(buffer{}.offset), 64, 52},
		"v4l2_buffer.length":  {unsafe.Offsetof(buffer{}.length), 72, 56},
		"v4l2_streamparm":     {unsafe.Sizeof(streamParameters{}), 204, 204},
	} {
		want := c.bits64
		if unsafe.Sizeof(uintptr(0)) == 4 {
			want = c.bits32
		}
		require.Equal(t, want, c.got, name)
	}
}

func TestOpenErrors(t *testing.T) {
	for path, message := range map[string]string{
		"/dev/missing": "open /dev/missing: no such file or directory",
		"/dev/null":    "/dev/null: VIDIOC_QUERYCAP: inappropriate ioctl for device",
	} {
		_, err := Open(path)
		require.EqualError(t, err, message)
	}
}
