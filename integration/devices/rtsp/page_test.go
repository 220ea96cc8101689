package rtsp_test

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"akri.sh/libs/pki"

	"akri.sh/integration/browser"
)

// functions are those of the test in the page: the time in the picture of a camera, the ages of the
// frames that were shown, the numbers of frames that were shown and dropped, and the seconds of
// video in memory.
const functions = `
const video = stream => document.querySelector('figure[data-stream="' + stream + '"] video');
const context = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
window.made = stream => {
	const element = video(stream);
	if (!element || !element.videoWidth) return 0;
	context.canvas.width = element.videoWidth; context.canvas.height = 16;
	context.drawImage(element, 0, 0);
	const pixels = context.getImageData(0, 8, context.canvas.width, 1).data;
	let milliseconds = 0, check = 0;
	for (let i = 0; i < 40; i++) {
		const bit = pixels[(i * 16 + 8) * 4] > 127 ? 1 : 0;
		if (i < 32) milliseconds = milliseconds * 2 + bit; else check = check * 2 + bit;
	}
	const bytes = [24, 16, 8, 0].map(shift => Math.floor(milliseconds / 2 ** shift) % 256);
	if (bytes.reduce((a, b) => a ^ b) !== check) return 0;
	return milliseconds;
};
const ages = {};
window.observe = stream => {
	const element = video(stream);
	ages[stream] = [];
	if (element.observed) return 0;
	element.observed = true;
	const observe = () => {
		const made = window.made(stream);
		if (made) ages[stream].push(Date.now() % 2 ** 32 - made);
		element.requestVideoFrameCallback(observe);
	};
	return element.requestVideoFrameCallback(observe);
};
window.ages = stream => ages[stream];
window.shown = stream => {
	const quality = video(stream)?.getVideoPlaybackQuality();
	return quality ? quality.totalVideoFrames - quality.droppedVideoFrames : 0;
};
window.dropped = stream => video(stream)?.getVideoPlaybackQuality().droppedVideoFrames ?? 0;
window.buffered = stream => {
	const ranges = video(stream)?.buffered;
	return ranges?.length ? ranges.end(ranges.length - 1) - ranges.start(0) : 0;
};
1`

// Limits of a page with three cameras, however long it is open.
const (
	// maxBuffered is twice the video that the page keeps behind the one that it shows, and a delay.
	maxBuffered = 45 * time.Second
	// maxListeners is the growth of the number of event listeners.
	maxListeners = 50
	// maxHeap is the growth of the memory of the page's objects in bytes.
	maxHeap = 4 << 20
)

// TestPage opens the page of the viewer with three cameras in Chromium, over TLS and with a token.
// It reads the time in the pictures: frames are shown for a while (AKRI_CAMERAS), the page follows
// the cameras, and what it keeps does not grow.
func TestPage(t *testing.T) {
	p := openPage(t, "dock", "gate & yard", "hall")
	p.browser.CheckAccessibility(t)
	before := p.browser.Usage(t)

	for began := time.Now(); time.Since(began) < watched(t); {
		p.watch(t, min(time.Minute, watched(t)-time.Since(began)))
		for _, stream := range p.streams {
			require.Less(t, p.number(t, "buffered", stream), maxBuffered.Seconds(), "old video is kept")
		}
	}

	after := p.browser.Usage(t)
	require.Less(t, after.Listeners, before.Listeners+maxListeners, "event listeners are kept")
	require.Less(t, after.Heap, before.Heap+maxHeap, "objects are kept")
	for _, program := range append(p.brokers, p.viewer) {
		require.Less(t, program.memory(t), memoryLimit)
	}
	p.browser.Screenshot(t, "cameras")
}

// cameraPage is the page of a viewer with the video of cameras.
type cameraPage struct {
	browser *browser.Browser
	viewer  *program
	brokers []*program
	streams []string // of the cameras, as strings of JavaScript
	began   time.Time
}

// openPage opens a page, and waits for the video of all cameras.
func openPage(t *testing.T, names ...string) *cameraPage {
	t.Helper()
	secrets := writeSecrets(t)
	_, port, err := net.SplitHostPort(freeAddress(t))
	require.NoError(t, err)
	p := &cameraPage{}
	var addresses []string
	for i, name := range names {
		camera := startCamera(t, "--username", "viewer", "--password", "secret")
		addresses = append(addresses, fmt.Sprintf("127.0.0.%d", 11+i))
		broker := startBroker(t, append(secrets, "RTSP_URL="+camera.URL("127.0.0.1"), "CAMERA_USERNAME=viewer", "CAMERA_PASSWORD=secret",
			"CAMERA_NAME="+name, "ADDRESS="+net.JoinHostPort(addresses[i], port))...)
		p.brokers = append(p.brokers, broker.program)
		p.streams = append(p.streams, strconv.Quote("cameras/"+url.PathEscape(name)+"/stream"))
	}
	viewer, address := startViewer(t, append(secrets, "CAMERAS=brokers.test", "CAMERAS_PORT="+port), addresses...)

	b := browser.Start(t, "https://"+address)
	b.SetHeader(t, "Authorization", "Bearer "+token)
	b.Do(t, "open the page", chromedp.Navigate("https://"+address+"/"))
	b.Number(t, functions)
	for _, stream := range p.streams {
		b.Await(t, "window.made("+stream+") > 0")
	}
	p.browser, p.viewer, p.began = b, viewer, time.Now()
	return p
}

func (p *cameraPage) number(t *testing.T, function, stream string) float64 {
	t.Helper()
	return p.browser.Number(t, "window."+function+"("+stream+")")
}

// sum returns the sum over the streams.
func (p *cameraPage) sum(t *testing.T, function string) (sum float64) {
	t.Helper()
	for _, stream := range p.streams {
		sum += p.number(t, function, stream)
	}
	return sum
}

// watch reads the time in each picture for a while. It logs the frame rate, the latency and the
// memory.
func (p *cameraPage) watch(t *testing.T, duration time.Duration) {
	t.Helper()
	began, shown, dropped := time.Now(), p.sum(t, "shown"), p.sum(t, "dropped")
	p.sum(t, "observe")
	<-time.After(duration)
	seconds := time.Since(began).Seconds() * float64(len(p.streams))
	shown, dropped = p.sum(t, "shown")-shown, p.sum(t, "dropped")-dropped
	var ages []float64
	for _, stream := range p.streams {
		ofStream := p.browser.Numbers(t, "window.ages("+stream+")")
		require.NotEmpty(t, ofStream, "no frame of %s is shown", stream)
		ages = append(ages, ofStream...)
	}
	slices.Sort(ages)

	brokers := 0
	for _, broker := range p.brokers {
		brokers += broker.memory(t)
	}
	usage := p.browser.Usage(t)
	const mebibyte = 1 << 20
	t.Logf("%4.0f s: %.1f frames a second of each camera, %.0f dropped; latency from the camera's clock to the page: p50 %.0f ms, p99 %.0f ms, max %.0f ms (%d frames); "+
		"brokers %.1f MiB, viewer %.1f MiB; page %.0f MiB, its objects %.2f MiB, %d listeners, %.0f s of video",
		time.Since(p.began).Seconds(), shown/seconds, dropped, ages[len(ages)/2], ages[len(ages)*99/100], ages[len(ages)-1], len(ages),
		float64(brokers)/mebibyte, float64(p.viewer.memory(t))/mebibyte, float64(usage.Memory)/mebibyte, float64(usage.Heap)/mebibyte,
		usage.Listeners, p.sum(t, "buffered"))
}

const token = "0123456789abcdef0123456789abcdef"

// writeSecrets writes a certificate for the brokers and the viewer, and a token. It returns the
// settings.
func writeSecrets(t *testing.T) []string {
	t.Helper()
	dir, now := t.TempDir(), time.Now()
	ca, err := pki.NewCA(now, "test", time.Hour)
	require.NoError(t, err)
	pair, err := pki.NewServer(now, ca, "camera-broker", time.Hour, []string{"brokers.test"})
	require.NoError(t, err)
	var settings []string
	for name, content := range map[string]string{
		"CAMERAS_CA_FILE": string(ca.CertificatePEM), "TLS_CERT_FILE": string(pair.CertificatePEM), "TLS_KEY_FILE": string(pair.KeyPEM),
		"TOKEN_FILE": token, "CAMERAS_TOKEN_FILE": token,
	} {
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(content), 0o600))
		settings = append(settings, name+"="+file)
	}
	return append(settings, "ALLOW_PLAIN_TEXT=false")
}

// startViewer starts the viewer. For it, the name brokers.test has the addresses.
func startViewer(t *testing.T, environ []string, addresses ...string) (viewer *program, address string) {
	t.Helper()
	hosts := filepath.Join(t.TempDir(), "hosts")
	var lines strings.Builder
	for _, address := range addresses {
		fmt.Fprintln(&lines, address, "brokers.test")
	}
	require.NoError(t, os.WriteFile(hosts, []byte(lines.String()), 0o600))
	path, err := binaries()
	require.NoError(t, err)
	address = freeAddress(t)
	viewer = run(t, append(environ, "ADDRESS="+address), "unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc/hosts && exec "$1"`, hosts, filepath.Join(path, "camera-viewer"))
	awaitTrue(t, "the viewer answers", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return viewer, address
}
