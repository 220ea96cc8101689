// Package video shares the frames of a camera among viewers.
package video

import "time"

// Codec of frames.
type Codec string

// Codecs.
const (
	JPEG Codec = "JPEG"
	H264 Codec = "H.264"
	H265 Codec = "H.265"
)

// Frame is one frame of a camera. Readers share it and must not change it.
type Frame struct {
	Codec Codec
	// Time is the time of the frame since the start of its session.
	Time time.Duration
	// Key is set if no earlier frame is needed to decode the frame. Such frames of H.264 and H.265
	// contain the parameter sets.
	Key bool
	// Units are the NAL units of a frame of H.264 or H.265.
	Units [][]byte
	// Image returns a JPEG image. It is nil for other codecs.
	Image func() ([]byte, error)
	// size is the number of bytes of the units.
	size int
}

// New returns a frame of H.264 or H.265.
func New(codec Codec, at time.Duration, key bool, units [][]byte) *Frame {
	frame := &Frame{Codec: codec, Time: at, Key: key, Units: units}
	for _, unit := range units {
		frame.size += len(unit)
	}
	return frame
}

// NewImage returns a frame whose image is encoded when it is needed.
func NewImage(at time.Duration, image func() ([]byte, error)) *Frame {
	return &Frame{Codec: JPEG, Time: at, Key: true, Image: image}
}
