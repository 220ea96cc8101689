package rtsp_test

import (
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/pki"

	"akri.sh/integration/devices/rtsp"
)

// Limits of a page with three cameras, however long it is open.
const (
	// maxBuffered is twice the video that the page keeps behind the one that it shows, and a delay.
	maxBuffered = 45 * time.Second
	// maxListeners is the growth of the number of event listeners.
	maxListeners = 50
	// maxHeap is the growth of the memory of the page's objects in bytes.
	maxHeap = 4 << 20
)

// minWatched is twice the time for which the pictures of a camera may rest.
const minWatched = 10 * time.Second

// TestPage opens the page of the viewer with three cameras in Chromium, over TLS and with a token.
// The pictures move for a while (AKRI_CAMERAS), and what the page keeps does not grow.
func TestPage(t *testing.T) {
	p := openPage(t, map[string]string{"dock": "h264", "gate & yard": "h264", "hall": "h264-high"})
	p.Browser.CheckAccessibility(t)
	before := p.Browser.Usage(t)

	duration := max(watched(t), minWatched)
	for began := time.Now(); time.Since(began) < duration; {
		p.watch(t, max(min(time.Minute, duration-time.Since(began)), minWatched))
		for _, name := range p.names {
			require.Less(t, p.Number(t, "buffered", name), maxBuffered.Seconds(), "old video is kept")
		}
	}

	after := p.Browser.Usage(t)
	require.Less(t, after.Listeners, before.Listeners+maxListeners, "event listeners are kept")
	require.Less(t, after.Heap, before.Heap+maxHeap, "objects are kept")
	limit := memoryLimit(t)
	for _, program := range append(p.brokers, p.viewer) {
		require.Less(t, program.memory(t), limit)
	}
	p.Browser.Screenshot(t, "cameras")
}

// TestPageAfterRestarts opens the page with a camera that sends video and one that sends JPEG
// images. Each is switched off and replaced by another at the same address, while the page stays
// open.
func TestPageAfterRestarts(t *testing.T) {
	codecs := map[string]string{"dock": "h264", "hall": "mjpeg"}
	p := openPage(t, codecs, "status of 503") // while a camera is off
	p.Watch(t, minWatched)

	for name, camera := range p.cameras {
		require.NoError(t, camera.Stop())
		p.cameras[name] = startCamera(t, append(login, "--codec", codecs[name], "--port", strconv.Itoa(camera.Port))...)
	}
	for name, camera := range p.cameras {
		p.Await(t, name, camera)
	}
	p.Watch(t, minWatched)
}

// TestPageRequiresToken requests everything that the viewer serves without the token and with
// others.
func TestPageRequiresToken(t *testing.T) {
	p := openPage(t, map[string]string{"dock": "mjpeg"})
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	t.Cleanup(client.CloseIdleConnections)
	code := func(path, authorization string) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+p.address+path, nil)
		require.NoError(t, err)
		if authorization != "" {
			request.Header.Set("Authorization", authorization)
		}
		response, err := client.Do(request)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.StatusCode
	}
	for _, path := range []string{"/", "/player.js", "/cameras/dock/stream", "/cameras/dock/snapshot.jpg", "/cameras/none/stream", "/none"} {
		for _, authorization := range []string{"", "Bearer", "Bearer ", "Bearer " + token[1:], "Bearer " + token + "0", "Basic " + token} {
			require.Equal(t, http.StatusUnauthorized, code(path, authorization), "%s with %q", path, authorization)
		}
	}
	for _, path := range []string{"/", "/cameras/dock/stream"} {
		require.Equal(t, http.StatusOK, code(path, "Bearer "+token), path)
	}
}

// cameraPage is the page of a viewer with the video of cameras.
type cameraPage struct {
	*rtsp.Page

	viewer  *program
	address string // of the viewer
	brokers []*program
	cameras map[string]*rtsp.Camera
	names   []string // of the cameras
	began   time.Time
}

// login are the arguments of a camera with a user, and those of its broker.
var (
	login       = []string{"--username", "viewer", "--password", "secret"}
	brokerLogin = []string{"CAMERA_USERNAME=viewer", "CAMERA_PASSWORD=secret"}
)

// openPage opens a page, and waits for the video of all cameras. codecs has the codec of each by
// its name. Errors of the page with an expected part do not fail the test.
func openPage(t *testing.T, codecs map[string]string, expected ...string) *cameraPage {
	t.Helper()
	secrets := writeSecrets(t)
	_, port, err := net.SplitHostPort(freeAddress(t))
	require.NoError(t, err)
	p := &cameraPage{names: slices.Sorted(maps.Keys(codecs)), cameras: map[string]*rtsp.Camera{}}
	var addresses []string
	for i, name := range p.names {
		p.cameras[name] = startCamera(t, append(login, "--codec", codecs[name])...)
		addresses = append(addresses, fmt.Sprintf("127.0.0.%d", 11+i))
		broker := startBroker(t, slices.Concat(secrets, brokerLogin, []string{
			"RTSP_URL=" + p.cameras[name].URL("127.0.0.1"), "CAMERA_NAME=" + name, "ADDRESS=" + net.JoinHostPort(addresses[i], port),
		})...)
		p.brokers = append(p.brokers, broker.program)
	}
	p.viewer, p.address = startViewer(t, append(secrets, "CAMERAS=brokers.test", "CAMERAS_PORT="+port), addresses...)

	p.Page = rtsp.OpenPage(t, p.address, token, p.cameras, expected...)
	p.began = time.Now()
	return p
}

// watch watches the pictures of the cameras move. It logs the frame rate, the latency and the
// memory.
func (p *cameraPage) watch(t *testing.T, duration time.Duration) {
	t.Helper()
	began, shown, dropped := time.Now(), p.Sum(t, "shown"), p.Sum(t, "dropped")
	ages := p.Watch(t, duration)
	seconds := time.Since(began).Seconds() * float64(len(p.names))
	shown, dropped = p.Sum(t, "shown")-shown, p.Sum(t, "dropped")-dropped
	slices.Sort(ages)

	brokers := 0
	for _, broker := range p.brokers {
		brokers += broker.memory(t)
	}
	usage := p.Browser.Usage(t)
	const mebibyte = 1 << 20
	t.Logf("%4.0f s: %.1f frames a second of each camera, %.0f dropped; latency from the camera's clock to the page: p50 %d ms, p99 %d ms, max %d ms (%d frames); "+
		"brokers %.1f MiB, viewer %.1f MiB; page %.0f MiB, its objects %.2f MiB, %d listeners, %.0f s of video",
		time.Since(p.began).Seconds(), shown/seconds, dropped, ages[len(ages)/2].Milliseconds(), ages[len(ages)*99/100].Milliseconds(), ages[len(ages)-1].Milliseconds(), len(ages),
		float64(brokers)/mebibyte, float64(p.viewer.memory(t))/mebibyte, float64(usage.Memory)/mebibyte, float64(usage.Heap)/mebibyte,
		usage.Listeners, p.Sum(t, "buffered"))
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
