package mjpeg_test

import (
	"bytes"
	"encoding/binary"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/deploy/samples/camera-broker/internal/mjpeg"
)

func TestComplete(t *testing.T) {
	complete := encoded(t)
	without := withoutTables(t, complete)
	_, err := jpeg.Decode(bytes.NewReader(without))
	require.Error(t, err)

	for name, frame := range map[string][]byte{"with tables": complete, "without tables": without} {
		t.Run(name, func(t *testing.T) {
			image, err := mjpeg.Complete(frame)
			require.NoError(t, err)
			require.Len(t, image, len(complete))
			picture, err := jpeg.Decode(bytes.NewReader(image))
			require.NoError(t, err)
			requireColor(t, color.RGBA{R: 200, A: 255}, picture.At(8, 8))
		})
	}
	for name, frame := range map[string][]byte{
		"empty": {}, "no image": []byte("frame"), "no scan": complete[:100], "only a start": {0xFF, 0xD8},
		"length beyond the end": {0xFF, 0xD8, 0xFF, 0xE0, 0xFF, 0xFF}, "length 0": {0xFF, 0xD8, 0xFF, 0xE0, 0, 0, 0xFF, 0xDA},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := mjpeg.Complete(frame)
			require.EqualError(t, err, "the frame is not a JPEG image")
		})
	}
}

func TestEncode(t *testing.T) {
	const width, height, bytesPerLine = 16, 8, 40
	y, cb, cr := color.RGBToYCbCr(0, 0, 200)
	frame := bytes.Repeat([]byte{y, cb, y, cr}, height*bytesPerLine/4)
	encoded, err := mjpeg.Encode(frame, width, height, bytesPerLine)
	require.NoError(t, err)
	picture, err := jpeg.Decode(bytes.NewReader(encoded))
	require.NoError(t, err)
	require.Equal(t, image.Rect(0, 0, width, height), picture.Bounds())
	requireColor(t, color.RGBA{B: 200, A: 255}, picture.At(15, 7))

	for name, c := range map[string][3]int{"short frame": {16, 9, 40}, "overlapping lines": {16, 8, 31}, "odd width": {15, 8, 40}, "no size": {0, 0, 0}} {
		t.Run(name, func(t *testing.T) {
			_, err := mjpeg.Encode(frame, c[0], c[1], c[2])
			require.ErrorContains(t, err, "a frame of 320 bytes is not an image of")
		})
	}
}

func FuzzComplete(f *testing.F) {
	f.Add([]byte{0xFF, 0xD8, 0xFF, 0xDA, 0, 2})
	f.Fuzz(func(t *testing.T, frame []byte) {
		image, err := mjpeg.Complete(frame)
		if err == nil {
			require.GreaterOrEqual(t, len(image), len(frame))
		}
	})
}

// encoded returns a red image.
func encoded(t *testing.T) []byte {
	t.Helper()
	picture := image.NewRGBA(image.Rect(0, 0, 16, 16))
	draw.Draw(picture, picture.Bounds(), image.NewUniform(color.RGBA{R: 200, A: 255}), image.Point{}, draw.Src)
	var encoded bytes.Buffer
	require.NoError(t, jpeg.Encode(&encoded, picture, nil))
	return encoded.Bytes()
}

// withoutTables removes the Huffman tables, as cameras do.
func withoutTables(t *testing.T, frame []byte) []byte {
	t.Helper()
	before, after, found := bytes.Cut(frame, []byte{0xFF, 0xC4})
	require.True(t, found)
	return append(bytes.Clone(before), after[binary.BigEndian.Uint16(after):]...)
}

func requireColor(t *testing.T, want color.RGBA, got color.Color) {
	t.Helper()
	r, g, b, _ := got.RGBA()
	require.InDelta(t, want.R, r>>8, 4)
	require.InDelta(t, want.G, g>>8, 4)
	require.InDelta(t, want.B, b>>8, 4)
}
