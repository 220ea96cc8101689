package decode

import (
	"bytes"
	"context"
	"encoding/hex"
	"image"
	"image/color"
	"image/jpeg"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/deploy/samples/camera-broker/internal/video"
)

// parameters are those of a video with the profile High 4:2:2 of H.264. Sizes are in macroblocks of
// 16 x 16 pixels.
type parameters struct {
	chromaFormat, lumaDepth, chromaDepth uint64 // 1 is 4:2:0; depths are less 8 bits
	width, height                        uint64
	interlaced, full                     bool
}

// set returns the sequence parameter set (ITU-T H.264, 7.3.2.1.1 and E.1.1).
func (p parameters) set() []byte {
	bits := &bitWriter{}
	bits.golomb(0) // seq_parameter_set_id
	bits.golomb(p.chromaFormat)
	bits.golomb(p.lumaDepth)
	bits.golomb(p.chromaDepth)
	bits.flags(false, false) // qpprime_y_zero_transform_bypass_flag, seq_scaling_matrix_present_flag
	bits.golomb(0)           // log2_max_frame_num_minus4
	bits.golomb(2)           // pic_order_cnt_type
	bits.golomb(1)           // max_num_ref_frames
	bits.flags(false)        // gaps_in_frame_num_value_allowed_flag
	bits.golomb(p.width - 1)
	bits.golomb(p.height - 1)
	bits.flags(!p.interlaced)
	if p.interlaced {
		bits.flags(false) // mb_adaptive_frame_field_flag
	}
	bits.flags(true, false, true)         // direct_8x8_inference_flag, frame_cropping_flag, vui_parameters_present_flag
	bits.flags(false, false, true)        // aspect_ratio_info_, overscan_info_, video_signal_type_present_flag
	bits.flags(true, false, true, p.full) // video_format, which is unspecified, and video_full_range_flag
	// colour_description_, chroma_loc_info_, timing_info_, nal_hrd_,
	// vcl_hrd_parameters_present_flag, pic_struct_present_flag, bitstream_restriction_flag
	bits.flags(make([]bool, 7)...)
	return append([]byte{0x67, 122, 0, 40}, bits.bytes()...)
}

// bitWriter collects bits as a text of 0 and 1.
type bitWriter struct{ text string }

func (w *bitWriter) flags(values ...bool) {
	for _, value := range values {
		w.text += map[bool]string{false: "0", true: "1"}[value]
	}
}

// golomb writes ue(v) (ITU-T H.264, 9.1).
func (w *bitWriter) golomb(value uint64) {
	digits := strconv.FormatUint(value+1, 2)
	w.text += strings.Repeat("0", len(digits)-1) + digits
}

// bytes returns the bits after a stop bit, with the bytes that keep start codes out (7.4.1).
func (w *bitWriter) bytes() (content []byte) {
	text := w.text + "1"
	text += strings.Repeat("0", (8-len(text)%8)%8)
	zeros := 0
	for at := 0; at < len(text); at += 8 {
		value, err := strconv.ParseUint(text[at:at+8], 2, 8)
		if err != nil {
			panic(err)
		}
		if zeros == 2 && value <= 3 {
			content, zeros = append(content, 3), 0
		}
		if value != 0 {
			zeros = -1
		}
		content, zeros = append(content, byte(value)), zeros+1
	}
	return content
}

func keyFrame(codec video.Codec, units ...[]byte) *video.Frame {
	return video.New(codec, 0, true, units)
}

// TestCheck checks which videos are decoded, and what the errors of the others name.
func TestCheck(t *testing.T) {
	const pixels = "the video is not decoded: it has %s pixels, at most 9437184 are supported"
	for name, c := range map[string]struct {
		change func(*parameters)
		want   string
		err    string
	}{
		"limited range":      {change: func(*parameters) {}, want: limitedRange},
		"full range":         {change: func(p *parameters) { p.full = true }, want: fullRange},
		"without colors":     {change: func(p *parameters) { p.chromaFormat = 0 }, want: limitedRange},
		"largest":            {change: func(p *parameters) { p.width, p.height = 4096/16, 2304/16 }, want: limitedRange},
		"too large":          {change: func(p *parameters) { p.width, p.height = 4096/16, 2320/16 }, err: strings.Replace(pixels, "%s", "4096 x 2320", 1)},
		"overflow":           {change: func(p *parameters) { p.width, p.height = 1<<28-1, 1<<28-1 }, err: strings.Replace(pixels, "%s", "4294967280 x 4294967280", 1)},
		"interlaced":         {change: func(p *parameters) { p.interlaced = true }, err: "the video is not decoded: it is interlaced; set the camera to progressive video"},
		"4:2:2":              {change: func(p *parameters) { p.chromaFormat = 2 }, err: "the video is not decoded: it is not 4:2:0 with 8 bits; set the camera to the profile Main or High"},
		"10 bits of luma":    {change: func(p *parameters) { p.lumaDepth = 2 }, err: "the video is not decoded: it is not 4:2:0 with 8 bits; set the camera to the profile Main or High"},
		"10 bits of chroma":  {change: func(p *parameters) { p.chromaDepth = 2 }, err: "the video is not decoded: it is not 4:2:0 with 8 bits; set the camera to the profile Main or High"},
		"full range, 4:2:2":  {change: func(p *parameters) { p.full, p.chromaFormat = true, 2 }, err: "the video is not decoded: it is not 4:2:0 with 8 bits; set the camera to the profile Main or High"},
		"interlaced, 10 bit": {change: func(p *parameters) { p.interlaced, p.lumaDepth = true, 2 }, err: "the video is not decoded: it is interlaced; set the camera to progressive video"},
	} {
		t.Run(name, func(t *testing.T) {
			p := parameters{chromaFormat: 1, width: 1920 / 16, height: 1088 / 16}
			c.change(&p)
			got, err := check(keyFrame(video.H264, p.set()))
			if c.err != "" {
				require.EqualError(t, err, c.err)
				require.ErrorIs(t, err, ErrUnsupported)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
	_, err := check(keyFrame(video.H264, []byte{0x67, 100}))
	require.ErrorContains(t, err, "the video is not decoded: its parameter set: ")
}

// TestRanges checks that the JPEG image has the full range of luma, whichever range the video has.
func TestRanges(t *testing.T) {
	shown := image.NewYCbCr(image.Rect(0, 0, 32, 16), image.YCbCrSubsampleRatio420)
	for i := range shown.Y {
		shown.Y[i] = map[bool]byte{true: 16, false: 235}[i%32 < 16]
	}
	for i := range shown.Cb {
		shown.Cb[i], shown.Cr[i] = 128, 128
	}
	for full, want := range map[bool][2]uint8{false: {0, 255}, true: {16, 235}} {
		var out bytes.Buffer
		require.NoError(t, reply(&out, shown, full, nil))
		kind, content, err := receive(&out)
		require.NoError(t, err)
		require.EqualValues(t, imageReply, kind)
		picture, err := jpeg.Decode(bytes.NewReader(content))
		require.NoError(t, err)
		for column, x := range []int{4, 28} {
			require.InDelta(t, want[column], picture.At(x, 8).(color.YCbCr).Y, 2, "full range: %t", full)
		}
	}
}

// sending is a camera that sends the frames of a test.
type sending struct{ frames chan *video.Frame }

func (s sending) Run(ctx context.Context, emit func(*video.Frame)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case frame := <-s.frames:
			emit(frame)
		}
	}
}

// send sends a frame ten times a second.
func (s sending) send(ctx context.Context, frame *video.Frame) {
	each := time.NewTicker(time.Second / 10)
	defer each.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-each.C:
		}
		select {
		case <-ctx.Done():
			return
		case s.frames <- frame:
		}
	}
}

// TestHangingDecoder has a child that neither reads nor replies. It is killed, its client learns of
// it, and the next key frame starts another child.
func TestHangingDecoder(t *testing.T) {
	t.Parallel()
	pids := filepath.Join(t.TempDir(), "pids")
	require.NoError(t, os.WriteFile(pids, nil, 0o600))
	camera := sending{make(chan *video.Frame)}
	hub := video.NewHub(camera, slog.New(slog.DiscardHandler), func(video.Event) {})
	decoder := New(hub, slog.New(slog.DiscardHandler), "/bin/sh", "-c", "echo $$ >>"+pids+"; exec sleep 600")
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	var running sync.WaitGroup
	defer running.Wait() // a child that starts late could write to pids while the test removes it
	defer stop()
	running.Go(func() { hub.Run(ctx) })
	running.Go(func() { decoder.Run(ctx) })
	started := func() []string {
		content, err := os.ReadFile(pids)
		require.NoError(t, err)
		return strings.Fields(string(content))
	}

	running.Go(func() { camera.send(ctx, keyFrame(video.H264, parameterSets(t)...)) })
	for len(started()) < 2 {
		_, err := decoder.Image(ctx)
		require.EqualError(t, err, "decoder: the process has not replied for 5s")
	}
	pid, err := strconv.Atoi(started()[0])
	require.NoError(t, err)
	require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, "the child that hung has ended")
}

// parameterSets returns the NAL units of the frame of TestDecode.
func parameterSets(t *testing.T) (units [][]byte) {
	t.Helper()
	for line := range strings.SplitSeq(frame, "\n") {
		_, unit, _ := strings.Cut(line, " ")
		content, err := hex.DecodeString(unit)
		require.NoError(t, err)
		units = append(units, content)
	}
	return units
}
