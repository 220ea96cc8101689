// Package mp4 writes video as fragmented MP4, which browsers play with Media Source Extensions.
package mp4

import (
	"bytes"
	"encoding/binary"
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

var errShort = errors.New("the parameter set of the video is too short")

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

// ContentType returns the media type with the codec of the video (RFC 6381 for H.264, ISO/IEC
// 14496-15, annex E.3, for H.265).
func ContentType(key *video.Frame) (string, error) {
	sets := parameters(key)
	if key.Codec == video.H264 {
		sps := sets[0]
		if len(sps) < 4 {
			return "", errShort
		}
		return fmt.Sprintf(`video/mp4; codecs="avc1.%02X%02X%02X"`, sps[1], sps[2], sps[3]), nil
	}
	general, err := generalOf(sets[1])
	if err != nil {
		return "", err
	}
	space := [...]string{"", "A", "B", "C"}[general[0]>>6]
	tier := [...]string{"L", "H"}[general[0]>>5&1]
	compatible := bits.Reverse32(binary.BigEndian.Uint32(general[1:]))
	codec := fmt.Appendf(nil, "hvc1.%s%d.%X.%s%d", space, general[0]&0x1F, compatible, tier, general[11])
	for _, constraints := range bytes.TrimRight(general[5:11], "\x00") {
		codec = fmt.Appendf(codec, ".%X", constraints)
	}
	return fmt.Sprintf(`video/mp4; codecs="%s"`, codec), nil
}

// generalOf returns the general profile, tier and level in a sequence parameter set of H.265: the
// profile in a byte, compatible profiles in 4, constraints in 6, and the level in a byte (ITU-T
// H.265, 7.3.3).
func generalOf(sps []byte) ([]byte, error) {
	// The header of the unit and a byte precede them.
	sps = h264.EmulationPreventionRemove(sps)
	if len(sps) < 15 {
		return nil, errShort
	}
	return sps[3:15], nil
}

// start writes the header.
func (w *Writer) start(key *video.Frame) error {
	var codec mp4.Codec = &mp4.CodecH264{SPS: w.parameters[0], PPS: w.parameters[len(w.parameters)-1]}
	if key.Codec == video.H265 {
		codec = &mp4.CodecH265{VPS: w.parameters[0], SPS: w.parameters[1], PPS: w.parameters[2]}
	}
	init := fmp4.Init{Tracks: []*fmp4.InitTrack{{ID: 1, TimeScale: timeScale, Codec: codec}}}
	header, err := marshal(init.Marshal)
	if err == nil && key.Codec == video.H265 {
		err = declareComplete(header, w.parameters[1])
	}
	if err != nil {
		return err
	}
	_, err = w.out.Write(header)
	return err
}

func marshal(write func(io.WriteSeeker) error) ([]byte, error) {
	var buffer seekablebuffer.Buffer
	err := write(&buffer)
	return buffer.Bytes(), err
}

// declareComplete changes the header of H.265: it declares that the header has all parameter sets
// ("hvc1", and array_completeness of each kind) instead of "hev1", which Safari does not play. It
// also corrects the constraints (ISO/IEC 14496-15, 8.3.3.1).
func declareComplete(header, sps []byte) error {
	general, err := generalOf(sps)
	if err != nil {
		return err
	}
	before, after, found := bytes.Cut(header, []byte("hev1"))
	_, record, foundRecord := bytes.Cut(after, []byte("hvcC"))
	if !found || !foundRecord {
		return errors.New("the header has no hev1 and hvcC")
	}
	copy(header[len(before):], "hvc1")
	copy(record[1:], general)
	arrays := record[23:]
	for range record[22] {
		arrays[0] |= 0x80
		length := int(binary.BigEndian.Uint16(arrays[3:])) // each kind has one set
		arrays = arrays[5+length:]
	}
	return nil
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
	units := frame.Units
	if frame.Key {
		units = units[len(w.parameters):] // the header has them
	}
	content, err := h264.AVCC(units).Marshal()
	if err != nil {
		return err
	}
	sample := &fmp4.Sample{PTSOffset: int32(presented - decoded), IsNonSyncSample: !frame.Key, Payload: content}
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
	content, err := marshal(part.Marshal)
	if err != nil {
		return err
	}
	_, err = w.out.Write(content)
	return err
}
