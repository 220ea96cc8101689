package v4l2

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// TestSizes compares the sizes of the structures with linux/videodev2.h. The size is part of the
// number of a request.
func TestSizes(t *testing.T) {
	for name, sizes := range map[string][2]uintptr{
		"v4l2_capability":     {104, unsafe.Sizeof(capability{})},
		"v4l2_fmtdesc":        {64, unsafe.Sizeof(formatDescription{})},
		"v4l2_format":         {208, unsafe.Sizeof(imageFormat{})},
		"v4l2_requestbuffers": {20, unsafe.Sizeof(bufferRequest{})},
		"v4l2_buffer":         {88, unsafe.Sizeof(buffer{})},
		"v4l2_streamparm":     {204, unsafe.Sizeof(streamParameters{})},
	} {
		require.Equal(t, sizes[0], sizes[1], name)
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
