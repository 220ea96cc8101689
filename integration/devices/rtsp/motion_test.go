package rtsp

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMotion checks that pictures that do not move, are late or few, or are of another camera, are
// reported.
func TestMotion(t *testing.T) {
	const camera, frame, delay = 7, time.Second / 15, 300 * time.Millisecond
	from := time.Now()
	to := from.Add(time.Minute)
	// pictures returns one for each frame of the camera, changed.
	pictures := func(change func(after time.Duration, s *sighting) (shown bool)) (seen []sighting) {
		for after := time.Duration(0); after < time.Minute; after += frame {
			s := sighting{shown: from.Add(after), made: from.Add(after - delay), camera: camera}
			if change(after, &s) {
				seen = append(seen, s)
			}
		}
		return seen
	}
	for name, c := range map[string]struct {
		change func(after time.Duration, s *sighting) bool
		err    string
	}{
		"video":                {change: func(time.Duration, *sighting) bool { return true }},
		"a frame is missed":    {change: func(after time.Duration, _ *sighting) bool { return after != 30*frame }},
		"three of four frames": {change: func(after time.Duration, _ *sighting) bool { return after/frame%4 != 0 }},
		"half of the frames":   {change: func(after time.Duration, _ *sighting) bool { return after/frame%2 == 0 }, err: "7.5 different pictures were shown a second, fewer than 10"},
		"each picture twice":   {change: func(after time.Duration, s *sighting) bool { s.made = s.made.Add(-after % (2 * frame)); return true }, err: "7.5 different pictures were shown a second"},
		"late for 20 s": {change: func(after time.Duration, s *sighting) bool {
			if after > 20*time.Second && after < 40*time.Second {
				s.made = s.made.Add(-3 * time.Second)
			}
			return after < 20*time.Second || after > 20*time.Second+3*time.Second
		}},
		"always late":             {change: func(_ time.Duration, s *sighting) bool { s.made = s.made.Add(-2 * time.Second); return true }, err: "half of the pictures are older than 1s, up to 2.3s"},
		"a pause for a key frame": {change: func(after time.Duration, _ *sighting) bool { return after < 10*time.Second || after > 13*time.Second }},
		"nothing":                 {change: func(time.Duration, *sighting) bool { return false }, err: "no picture was shown"},
		"another camera":          {change: func(_ time.Duration, s *sighting) bool { s.camera = 8; return true }, err: "it has the number 8, not 7"},
		"for a moment":            {change: func(after time.Duration, s *sighting) bool { s.camera += byte(after / (59 * time.Second)); return true }, err: "it has the number 8, not 7"},
		"frozen":                  {change: func(_ time.Duration, s *sighting) bool { s.made = from; s.shown = s.shown.Add(delay); return true }, err: "a picture is 10."},
		"frozen at the end":       {change: func(after time.Duration, s *sighting) bool { return after < 54*time.Second }, err: "the last picture was shown 6."},
		"the last picture remains": {change: func(after time.Duration, s *sighting) bool {
			s.made = from.Add(min(after, 54500*time.Millisecond) - delay)
			return true
		}, err: "the last picture was shown 5."},
		"starts late": {change: func(after time.Duration, _ *sighting) bool { return after > 6*time.Second }, err: "no other picture was shown for 6."},
		"loop of 2 s": {change: func(after time.Duration, s *sighting) bool {
			s.made = from.Add(after%(2*time.Second) - delay)
			return true
		}, err: "older than the one before"},
		"recording":               {change: func(_ time.Duration, s *sighting) bool { s.made = s.made.Add(-time.Hour); return true }, err: "a picture is 1h0m0."},
		"slow motion":             {change: func(after time.Duration, s *sighting) bool { s.made = from.Add(after/2 - delay); return true }, err: "a picture is 10."},
		"the clock of the future": {change: func(_ time.Duration, s *sighting) bool { s.made = s.made.Add(time.Second); return true }, err: "before it was made"},
		"one picture a second":    {change: func(after time.Duration, _ *sighting) bool { return after/frame%15 == 0 }, err: "1.0 different pictures were shown a second, fewer than 10"},
	} {
		t.Run(name, func(t *testing.T) {
			seen := pictures(c.change)
			err := checkMotion(seen, camera, from, to)
			if err == nil {
				err = checkPace(seen, to.Sub(from))
			}
			if c.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, c.err)
		})
	}
}
