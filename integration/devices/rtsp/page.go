package rtsp

import (
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"akri.sh/integration/browser"
)

//go:embed page.js
var functions string

// Limits of pictures that move. A machine with two CPUs that also runs other tests showed 14.4 to
// 15 of the 15 frames a second of each camera, which were up to 0.9 s old.
const (
	// minRate is the number of different pictures a second: a fifth of those of the camera, because
	// browsers drop frames when they wait for a CPU.
	minRate = 3
	// maxGap is the time without another picture. A viewer that misses frames waits for a key
	// frame, which the cameras send every 2 s.
	maxGap = 5 * time.Second
	// maxAge is the age of a picture when it is shown. The page skips what is more than 1 s behind
	// the newest frame that it has, but all programs before it wait for a CPU, too.
	maxAge = 10 * time.Second
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

// Sum returns the sum of Number over the cameras.
func (p *Page) Sum(t *testing.T, function string) (sum float64) {
	t.Helper()
	for name := range p.cameras {
		sum += p.Number(t, function, name)
	}
	return sum
}

// Watch requires that the pictures of each camera move in step with the clock for the duration. It
// returns the age of each picture when it was shown.
func (p *Page) Watch(t *testing.T, duration time.Duration) (ages []time.Duration) {
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
		for _, s := range seen {
			ages = append(ages, s.shown.Sub(s.made))
		}
	}
	return ages
}

// sighting is a picture that a page has shown.
type sighting struct {
	shown, made time.Time
	camera      byte
}

// checkMotion returns an error unless the pictures that were seen from one time to another are
// those of the camera, each newer than the one before, none late, and as many as the limits
// require.
func checkMotion(seen []sighting, camera byte, from, to time.Time) error {
	pictures, last := 0, sighting{shown: from}
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
		pictures, last = pictures+1, s
	}
	if pictures == 0 {
		return errors.New("no picture was shown")
	}
	if gap := to.Sub(last.shown); gap > maxGap {
		return fmt.Errorf("the last picture was shown %s before the end", gap)
	}
	if rate := float64(pictures) / to.Sub(from).Seconds(); rate < minRate {
		return fmt.Errorf("%.1f different pictures were shown a second, fewer than %d", rate, minRate)
	}
	return nil
}
