package rtsp

import (
	_ "embed"
	"errors"
	"fmt"
	"image/color"
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"akri.sh/integration/browser"
)

//go:embed page.js
var functions string

// Limits of pictures that move, which hold at all times.
const (
	// maxGap is the time without another picture. A viewer that misses frames waits for a key
	// frame, which the cameras send every 2 s.
	maxGap = 5 * time.Second
	// maxAge is the age of a picture when it is shown. The page skips what is more than 1 s behind
	// the newest frame that it has, but all programs before it wait for a CPU, too.
	maxAge = 10 * time.Second
)

// Limits of the pace of the pictures over some time. A machine with two CPUs and a load of 20
// showed 13.7 to 15 of the 15 frames a second of each camera, and half of them within 0.4 s.
const (
	// minRate is the number of different pictures a second: two thirds of those of the camera.
	minRate = 10
	// maxMedianAge is the age that half of the pictures do not exceed. The page skips frames if it
	// is as much behind the newest one.
	maxMedianAge = time.Second
	// paceTimeout is the time within which the pictures must have their pace. Browsers drop frames
	// when they wait for a CPU. That ends with the load of the machine, and a fault of the programs
	// does not.
	paceTimeout = 3 * time.Minute
	// paceTime is the time over which the pace is measured again.
	paceTime = 10 * time.Second
)

// Page is the page of camera-viewer in a browser.
type Page struct {
	Browser *browser.Browser
	cameras map[string]*Camera
}

// OpenPage opens the page of the viewer at the address, and waits until it shows the pictures of
// each camera. cameras are those of the viewer, by their names. Errors of the page with an expected
// part do not fail the test.
func OpenPage(t *testing.T, address, token string, cameras map[string]*Camera, expected ...string) *Page {
	t.Helper()
	b := browser.Start(t, "https://"+address, expected...)
	b.SetHeader(t, "Authorization", "Bearer "+token)
	b.Do(t, "open the page", chromedp.Navigate("https://"+address+"/"))
	b.Number(t, functions)
	p := &Page{Browser: b, cameras: map[string]*Camera{}}
	for name, camera := range cameras {
		p.Await(t, name, camera)
	}
	return p
}

// Await waits until the page shows the pictures of the camera under the name.
func (p *Page) Await(t *testing.T, name string, camera *Camera) {
	t.Helper()
	p.Browser.Await(t, fmt.Sprintf("window.shows(%s, %d)", streamOf(name), camera.number))
	p.cameras[name] = camera
}

// streamOf returns the address of a stream in the page as a string of JavaScript.
func streamOf(name string) string {
	return strconv.Quote("cameras/" + url.PathEscape(name) + "/stream")
}

// Number returns the value of a function in page.js for a camera.
func (p *Page) Number(t *testing.T, function, name string) float64 {
	t.Helper()
	return p.Browser.Number(t, "window."+function+"("+streamOf(name)+")")
}

// Color returns the color in the middle of the picture that the page shows under the name, and
// whether it shows one.
func (p *Page) Color(t *testing.T, name string) (c color.RGBA, shown bool) {
	t.Helper()
	number := int(p.Number(t, "color", name))
	return color.RGBA{R: uint8(number >> 16), G: uint8(number >> 8), B: uint8(number), A: 255}, number >= 0
}

// Sum returns the sum of Number over the cameras.
func (p *Page) Sum(t *testing.T, function string) (sum float64) {
	t.Helper()
	for name := range p.cameras {
		sum += p.Number(t, function, name)
	}
	return sum
}

// Watch requires that the pictures of each camera move in step with the clock for the duration, and
// with the pace of the camera for the duration or some time after it. It returns the age of each
// picture that was shown in the duration.
func (p *Page) Watch(t *testing.T, duration time.Duration) (ages []time.Duration) {
	t.Helper()
	ages, err := p.watch(t, duration)
	for deadline := time.Now().Add(paceTimeout); err != nil && time.Now().Before(deadline); {
		t.Logf("watching the page again: %s", err)
		_, err = p.watch(t, paceTime)
	}
	require.NoError(t, err)
	return ages
}

// watch requires that the pictures of each camera move for the duration. It returns an error unless
// they have the pace of the camera.
func (p *Page) watch(t *testing.T, duration time.Duration) (ages []time.Duration, err error) {
	t.Helper()
	from := time.Now()
	p.Sum(t, "observe")
	<-time.After(duration)
	for name, camera := range p.cameras {
		numbers := p.Browser.Numbers(t, "window.seen("+streamOf(name)+")")
		to := time.Now()
		var seen []sighting
		for ; len(numbers) >= 3; numbers = numbers[3:] {
			shown := time.UnixMilli(int64(numbers[0]))
			seen = append(seen, sighting{shown: shown, made: complete(uint32(numbers[1]), shown), camera: byte(numbers[2])})
		}
		require.NoError(t, checkMotion(seen, camera.number, from, to), "the video of %s", name)
		err = errors.Join(err, prefixed("the video of "+name, checkPace(seen, to.Sub(from))))
		for _, s := range seen {
			ages = append(ages, s.shown.Sub(s.made))
		}
	}
	return ages, err
}

// prefixed returns the error with a prefix, or nil.
func prefixed(prefix string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", prefix, err)
}

// sighting is a picture that a page has shown.
type sighting struct {
	shown, made time.Time
	camera      byte
}

// checkMotion returns an error unless the pictures that were seen from one time to another are
// those of the camera, each newer than the one before, none too old, and none shown for too long.
func checkMotion(seen []sighting, camera byte, from, to time.Time) error {
	last := sighting{shown: from}
	for _, s := range seen {
		age := s.shown.Sub(s.made)
		switch {
		case s.camera != camera:
			return fmt.Errorf("a picture is damaged or of another camera: it has the number %d, not %d", s.camera, camera)
		case age < 0:
			return fmt.Errorf("a picture was shown %s before it was made", -age)
		case age > maxAge:
			return fmt.Errorf("a picture is %s old", age)
		case s.made.Before(last.made):
			return fmt.Errorf("a picture is %s older than the one before", last.made.Sub(s.made))
		case s.made.Equal(last.made):
			continue
		case s.shown.Sub(last.shown) > maxGap:
			return fmt.Errorf("no other picture was shown for %s", s.shown.Sub(last.shown))
		}
		last = s
	}
	if last.made.IsZero() {
		return errors.New("no picture was shown")
	}
	if gap := to.Sub(last.shown); gap > maxGap {
		return fmt.Errorf("the last picture was shown %s before the end", gap)
	}
	return nil
}

// checkPace returns an error unless the pictures that were seen in the duration are as many and as
// new as the limits require.
func checkPace(seen []sighting, duration time.Duration) error {
	var ages []time.Duration // of different pictures
	var last time.Time
	for _, s := range seen {
		if !s.made.Equal(last) {
			ages, last = append(ages, s.shown.Sub(s.made)), s.made
		}
	}

	slices.Sort(ages)
	if rate := float64(len(ages)) / duration.Seconds(); rate < minRate {
		return fmt.Errorf("%.1f different pictures were shown a second, fewer than %d", rate, minRate)
	}
	if median := ages[len(ages)/2]; median > maxMedianAge {
		return fmt.Errorf("half of the pictures are older than %s, up to %s", maxMedianAge, median)
	}
	return nil
}
