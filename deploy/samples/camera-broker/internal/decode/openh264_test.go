package decode

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// frame is a frame in the format of Annex B that x264 encoded: 64 x 48 pixels, the left half is
// black, the right half is white.
const frame = `00000001 6742c00ad9047a1000000300100000030320f1226480
00000001 68cb81b2c8
00000001 6588843f262800097dc9c98a0002be5275d75d75d75d78`

func TestDecode(t *testing.T) {
	content, err := hex.DecodeString(strings.NewReplacer(" ", "", "\n", "").Replace(frame))
	require.NoError(t, err)
	decoder, err := open()
	require.NoError(t, err)
	picture, err := decoder.decode(content)
	require.NoError(t, err)
	require.NotNil(t, picture)
	require.Equal(t, 64, picture.Rect.Dx())
	require.Equal(t, 48, picture.Rect.Dy())
	for y := range 48 {
		for x := range 64 {
			want := map[bool]float64{true: 16, false: 235}[x < 32]
			require.InDelta(t, want, float64(picture.YCbCrAt(x, y).Y), 4, "%d, %d", x, y)
		}
	}
	require.InDelta(t, 128, float64(picture.YCbCrAt(0, 0).Cb), 4)
	require.InDelta(t, 128, float64(picture.YCbCrAt(63, 47).Cr), 4)
}

func TestDecodeDamage(t *testing.T) {
	decoder, err := open()
	require.NoError(t, err)
	_, err = decoder.decode(nil)
	require.EqualError(t, err, "the frame is empty")
	_, err = decoder.decode([]byte("\x00\x00\x00\x01\x65\x88\x84\x00\xff"))
	require.ErrorContains(t, err, "OpenH264: state 0x")
}
