package mp4_test

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/bluenviron/mediacommon/v2/pkg/formats/fmp4"
	"github.com/stretchr/testify/require"

	"akri.sh/deploy/samples/camera-broker/internal/mp4"
	"akri.sh/deploy/samples/camera-broker/internal/video"
)

// TestContentType compares with the codecs that other programs state for such videos, such as
// hvc1.1.6.L93.B0 of iPhones.
func TestContentType(t *testing.T) {
	for name, c := range map[string]struct {
		codec     video.Codec
		parameter string // the beginning of the sequence parameter set
		want, err string
	}{
		"H.264 Main":                  {codec: video.H264, parameter: "674d401e", want: `video/mp4; codecs="avc1.4D401E"`},
		"H.264 Constrained Baseline":  {codec: video.H264, parameter: "6742c01f", want: `video/mp4; codecs="avc1.42C01F"`},
		"H.264, too short":            {codec: video.H264, parameter: "67", err: "the parameter set of the video is too short"},
		"H.265 Main":                  {codec: video.H265, parameter: "42010101600000030090000003000003005d", want: `video/mp4; codecs="hvc1.1.6.L93.90"`},
		"H.265 Main, not packed":      {codec: video.H265, parameter: "420101016000000300b0000003000003005d", want: `video/mp4; codecs="hvc1.1.6.L93.B0"`},
		"H.265 Main 10, high tier":    {codec: video.H265, parameter: "420101222000000300900000030000030099", want: `video/mp4; codecs="hvc1.2.4.H153.90"`},
		"H.265 with more constraints": {codec: video.H265, parameter: "4201010408000003009d0800000300005d", want: `video/mp4; codecs="hvc1.4.10.L93.9D.8"`},
		"H.265 without constraints":   {codec: video.H265, parameter: "4201010160000003000003000003000003005d", want: `video/mp4; codecs="hvc1.1.6.L93"`},
		"H.265, too short":            {codec: video.H265, parameter: "42010101600000030090", err: "the parameter set of the video is too short"},
	} {
		t.Run(name, func(t *testing.T) {
			set := decode(t, c.parameter)
			got, err := mp4.ContentType(video.New(c.codec, 0, true, [][]byte{set, set, set}))
			if c.err != "" {
				require.EqualError(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

// TestParameterSets checks that the header has the parameter sets and declares that it has all of
// them, and that frames have none.
func TestParameterSets(t *testing.T) {
	for codec, c := range map[video.Codec]struct {
		sets   []string
		frame  string
		header []string // parts
	}{
		video.H264: {
			sets: []string{"6742c01e8c8d405017fcb00f08846a", "68ce3c80"}, frame: "65888014030000000000",
			header: []string{hex.EncodeToString([]byte("avc1")), "6742c01e8c8d405017fcb00f08846a", "68ce3c80"},
		},
		video.H265: {
			sets: []string{
				"40010c01ffff01600000030090000003000003003f959009",
				"42010101600000030090000003000003003fa005020171f2e595912930bffc00040005a830303020000003002000000301e1", "4401c073c189",
			},
			frame: "2601af0842",
			header: []string{
				hex.EncodeToString([]byte("hvc1")), hex.EncodeToString([]byte("hvcC")) + "0101600000009000000000003f",
				"a00001001840010c01ffff01600000030090000003000003003f959009", "a1000100324201", "a2000100064401c073c189",
			},
		},
	} {
		t.Run(string(codec), func(t *testing.T) {
			var units [][]byte
			for _, unit := range append(c.sets, c.frame) {
				units = append(units, decode(t, unit))
			}
			var file bytes.Buffer
			key := func(at time.Duration) *video.Frame { return video.New(codec, at, true, units) }
			writer, err := mp4.NewWriter(&file, key(0))
			require.NoError(t, err)
			require.NoError(t, writer.Write(key(0)))
			header := hex.EncodeToString(file.Bytes())
			for _, part := range c.header {
				require.Contains(t, header, part)
			}

			file.Reset()
			require.NoError(t, writer.Write(key(time.Second)))
			var parts fmp4.Parts
			require.NoError(t, parts.Unmarshal(file.Bytes()))
			sample := parts[0].Tracks[0].Samples[0]
			require.Equal(t, fmt.Sprintf("%08x%s", len(c.frame)/2, c.frame), hex.EncodeToString(sample.Payload))
			require.False(t, sample.IsNonSyncSample)
		})
	}
}

func decode(t *testing.T, text string) []byte {
	t.Helper()
	content, err := hex.DecodeString(text)
	require.NoError(t, err)
	return content
}
