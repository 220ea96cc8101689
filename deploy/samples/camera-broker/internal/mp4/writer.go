// Package mp4 writes video as fragmented MP4, which browsers play with Media Source Extensions.
package mp4

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"time"

	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h264"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h265"
	"github.com/bluenviron/mediacommon/v2/pkg/formats/fmp4"
	"github.com/bluenviron/mediacommon/v2/pkg/formats/fmp4/seekablebuffer"
	"github.com/bluenviron/mediacommon/v2/pkg/formats/mp4"

	"akri.sh/deploy/samples/camera-broker/internal/video"
)

// timeScale is the number of time units in a second.
const timeScale = 90_000

// origin is the time of the first frame. Frames before a B-frame are decoded before they are
// presented, and MP4 has no negative times.
const origin = 10 * time.Second

// ErrFormatChanged means that a key frame has other parameter sets than the first frame.
var ErrFormatChanged = errors.New("the format of the video has changed")

// Writer writes frames of H.264 or H.265.
type Writer struct {
	out        io.Writer
	parameters [][]byte
	extract    func(units [][]byte, pts int64) (int64, error)
	sequence   uint32
	// last is the sample that has not been written, because its duration is known with the next.
	last     *fmp4.Sample
	lastTime int64 // when last is decoded
}

// NewWriter returns a Writer of a video that begins with the key frame. It writes nothing yet.
func NewWriter(out io.Writer, key *video.Frame) (*Writer, error) {
	w := &Writer{out: out, parameters: parameters(key)}
	switch key.Codec {
	case video.H264:
		extractor := &h264.DTSExtractor{}
		extractor.Initialize()
		w.extract = extractor.Extract
	case video.H265:
		extractor := &h265.DTSExtractor{}
		extractor.Initialize()
		w.extract = extractor.Extract
	default:
		return nil, fmt.Errorf("%s is not written as MP4", key.Codec)
	}
	return w, nil
}

// parameters returns the parameter sets of a key frame, which are its first units.
func parameters(key *video.Frame) [][]byte {
	count := 2
	if key.Codec == video.H265 {
		count = 3
	}
	return key.Units[:count]
}

// ContentType returns the media type with the codec of the video (RFC 6381).
func ContentType(key *video.Frame) (string, error) {
	sets := parameters(key)
	if key.Codec == video.H264 {
		sps := sets[0]
		if len(sps) < 4 {
			return "", errors.New("the parameter set of the video is too short")
		}
		return fmt.Sprintf(`video/mp4; codecs="avc1.%02X%02X%02X"`, sps[1], sps[2], sps[3]), nil
	}
	var sps h265.SPS
	if err := sps.Unmarshal(sets[1]); err != nil {
		return "", fmt.Errorf("parameter set of the video: %w", err)
	}
	level := sps.ProfileTierLevel
	var compatible uint32
	for i, set := range level.GeneralProfileCompatibilityFlag {
		if set {
			compatible |= 1 << i
		}
	}
	tier := [...]string{"L", "H"}[level.GeneralTierFlag]
	return fmt.Sprintf(`video/mp4; codecs="hvc1.%d.%X.%s%d.B0"`, level.GeneralProfileIdc, compatible, tier, level.GeneralLevelIdc), nil
}

// Start writes the header.
func (w *Writer) start(key *video.Frame) error {
	var codec mp4.Codec = &mp4.CodecH264{SPS: w.parameters[0], PPS: w.parameters[len(w.parameters)-1]}
	if key.Codec == video.H265 {
		codec = &mp4.CodecH265{VPS: w.parameters[0], SPS: w.parameters[1], PPS: w.parameters[2]}
	}
	init := fmp4.Init{Tracks: []*fmp4.InitTrack{{ID: 1, TimeScale: timeScale, Codec: codec}}}
	return w.marshal(init.Marshal)
}

func (w *Writer) marshal(write func(io.WriteSeeker) error) error {
	var buffer seekablebuffer.Buffer
	if err := write(&buffer); err != nil {
		return err
	}
	_, err := w.out.Write(buffer.Bytes())
	return err
}

// Write writes the frame before this one, and the header before the first.
func (w *Writer) Write(frame *video.Frame) error {
	if frame.Key && !slices.EqualFunc(parameters(frame), w.parameters, slices.Equal[[]byte]) {
		return ErrFormatChanged
	}
	presented := int64((frame.Time + origin) * timeScale / time.Second)
	decoded, err := w.extract(frame.Units, presented)
	if err != nil {
		return fmt.Errorf("order of frames: %w", err)
	}
	sample := &fmp4.Sample{}
	if frame.Codec == video.H264 {
		err = sample.FillH264(int32(presented-decoded), frame.Units)
	} else {
		err = sample.FillH265(int32(presented-decoded), frame.Units)
	}
	if err != nil {
		return err
	}
	if w.last == nil {
		err = w.start(frame)
	} else {
		err = w.flush(decoded)
	}
	w.last, w.lastTime = sample, decoded
	return err
}

func (w *Writer) flush(next int64) error {
	duration := next - w.lastTime
	if duration <= 0 || bits.Len64(uint64(duration)) > 31 {
		return fmt.Errorf("times of frames: %d is followed by %d", w.lastTime, next)
	}
	w.last.Duration = uint32(duration)
	w.sequence++
	part := fmp4.Part{SequenceNumber: w.sequence, Tracks: []*fmp4.PartTrack{
		{ID: 1, BaseTime: uint64(w.lastTime), Samples: []*fmp4.Sample{w.last}},
	}}
	return w.marshal(part.Marshal)
}
