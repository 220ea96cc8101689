package rtsp

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/bluenviron/gortsplib/v5"
	"github.com/bluenviron/gortsplib/v5/pkg/description"
	"github.com/bluenviron/gortsplib/v5/pkg/format"
	"github.com/bluenviron/gortsplib/v5/pkg/format/rtph264"
	"github.com/bluenviron/gortsplib/v5/pkg/format/rtph265"
	"github.com/bluenviron/gortsplib/v5/pkg/format/rtpmjpeg"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h264"
	"github.com/bluenviron/mediacommon/v2/pkg/codecs/h265"
	"github.com/pion/rtp"

	"akri.sh/deploy/samples/camera-broker/internal/video"
)

// track is the video of a session.
type track struct {
	media  *description.Media
	format format.Format
	codec  video.Codec
	emit   func(*video.Frame)
	// decode returns the NAL units of a frame when the packet completes it.
	decode func(*rtp.Packet) ([][]byte, error)
	// image returns a JPEG image when the packet completes it.
	image func(*rtp.Packet) ([]byte, error)
	// kind returns the type of a NAL unit that is not empty.
	kind  func(unit []byte) int
	isKey func(units [][]byte) bool
	sets  []parameterSet
}

// parameterSet is needed to decode the video. Cameras send it in the description of the stream,
// before key frames, or both.
type parameterSet struct {
	kind      int
	described []byte
}

// newTrack returns nil for a codec that is not supported.
func newTrack(media *description.Media, f format.Format, emit func(*video.Frame)) (*track, error) {
	t := &track{media: media, format: f, emit: emit}
	var err error
	switch f := f.(type) {
	case *format.H264:
		var decoder *rtph264.Decoder
		if decoder, err = f.CreateDecoder(); err == nil {
			t.decode = decoder.Decode
		}
		t.codec, t.isKey = video.H264, h264.IsRandomAccess
		t.kind = func(unit []byte) int { return int(unit[0] & 0x1F) }
		t.sets = []parameterSet{{int(h264.NALUTypeSPS), f.SPS}, {int(h264.NALUTypePPS), f.PPS}}
	case *format.H265:
		var decoder *rtph265.Decoder
		if decoder, err = f.CreateDecoder(); err == nil {
			t.decode = decoder.Decode
		}
		t.codec, t.isKey = video.H265, h265.IsRandomAccess
		t.kind = func(unit []byte) int { return int(unit[0] >> 1 & 0x3F) }
		t.sets = []parameterSet{
			{int(h265.NALUType_VPS_NUT), f.VPS}, {int(h265.NALUType_SPS_NUT), f.SPS}, {int(h265.NALUType_PPS_NUT), f.PPS},
		}
	case *format.MJPEG:
		var decoder *rtpmjpeg.Decoder
		if decoder, err = f.CreateDecoder(); err == nil {
			t.image = decoder.Decode
		}
		t.codec = video.JPEG
	default:
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", t.codec, err)
	}
	return t, nil
}

// incomplete are errors of packets that do not complete a frame.
var incomplete = []error{
	rtph264.ErrMorePacketsNeeded, rtph264.ErrNonStartingPacketAndNoPrevious,
	rtph265.ErrMorePacketsNeeded, rtph265.ErrNonStartingPacketAndNoPrevious,
	rtpmjpeg.ErrMorePacketsNeeded, rtpmjpeg.ErrNonStartingPacketAndNoPrevious,
}

func (t *track) receive(client *gortsplib.Client, log *slog.Logger) func(*rtp.Packet) {
	return func(packet *rtp.Packet) {
		at, ok := client.PacketPTS(t.media, packet)
		if !ok {
			return // the camera has not sent the time yet
		}
		frame, err := t.frame(packet)
		switch {
		case slices.ContainsFunc(incomplete, func(expected error) bool { return errors.Is(err, expected) }):
		case err != nil:
			log.Warn("a frame cannot be read", "error", err)
		case frame != nil:
			frame.Time = ticks(at, t.format.ClockRate())
			t.emit(frame)
		}
	}
}

// frame returns the frame that the packet completes. It returns nil for a key frame without
// parameter sets.
func (t *track) frame(packet *rtp.Packet) (*video.Frame, error) {
	if t.image != nil {
		image, err := t.image(packet)
		if err != nil {
			return nil, err
		}
		return video.NewImage(0, func() ([]byte, error) { return image, nil }), nil
	}
	units, err := t.decode(packet)
	if err != nil {
		return nil, err
	}
	units = slices.DeleteFunc(units, func(unit []byte) bool { return len(unit) == 0 })
	if !t.isKey(units) {
		return video.New(t.codec, 0, false, units), nil
	}
	var complete [][]byte
	for _, set := range t.sets {
		is := func(unit []byte) bool { return t.kind(unit) == set.kind }
		value := set.described
		if at := slices.IndexFunc(units, is); at >= 0 {
			value = units[at]
		}
		if len(value) == 0 {
			return nil, nil
		}
		complete = append(complete, value)
		units = slices.DeleteFunc(units, is)
	}
	return video.New(t.codec, 0, true, append(complete, units...)), nil
}
