package rtsp_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"image/jpeg"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"akri.sh/libs/pki"
	"akri.sh/proto/camera"

	"akri.sh/integration/browser"
	"akri.sh/integration/devices/rtsp"
)

// binaries builds the broker and the viewer once. It returns their directory.
var binaries = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "akri-camera-broker-")
	if err != nil {
		return "", err
	}
	command := exec.Command("go", "build", "-o", dir+"/", "./cmd/...")
	command.Dir = "../../../deploy/samples/camera-broker"
	output, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, output)
	}
	return dir, err
})

func startCamera(t *testing.T, arguments ...string) *rtsp.Camera {
	t.Helper()
	c, err := rtsp.Start(t.Context(), nil, arguments...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Stop() })
	return c
}

// broker is a running broker.
type broker struct {
	address string
	log     *buffer
	pid     int
}

// startBroker starts a broker, in plain text unless the settings have another value.
func startBroker(t *testing.T, environ ...string) *broker {
	t.Helper()
	path, err := binaries()
	require.NoError(t, err)
	b := &broker{address: freeAddress(t)}
	standard := []string{"ADDRESS=" + b.address, "METRICS_ADDRESS=" + freeAddress(t), "ALLOW_PLAIN_TEXT=true"}
	b.log, b.pid = run(t, append(standard, environ...), filepath.Join(path, "camera-broker"))
	return b
}

// run runs a program until the end of the test. It returns its log and its process.
func run(t *testing.T, environ []string, program string, arguments ...string) (*buffer, int) {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, arguments...)
	log := &buffer{}
	command.Env, command.Stdout, command.Stderr = environ, log, log
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return log, command.Process.Pid
}

// buffer is a bytes.Buffer that can be read while a program writes.
type buffer struct {
	mu      sync.Mutex
	content bytes.Buffer
}

func (b *buffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.content.Write(data)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.content.String()
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// health returns "ok", or why the camera sends no frames.
func (b *broker) health() string {
	for _, path := range []string{"/healthz", "/snapshot.jpg"} {
		response, err := http.Get("http://" + b.address + path)
		if err != nil {
			return err.Error()
		}
		text, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		switch {
		case err != nil:
			return err.Error()
		case response.StatusCode == http.StatusOK:
			return "ok"
		case path != "/healthz":
			return string(text)
		}
	}
	return ""
}

func (b *broker) awaitHealth(t *testing.T, want string) {
	t.Helper()
	var text string
	defer func() {
		if t.Failed() {
			t.Log("health:", text)
		}
	}()
	awaitTrue(t, "health: "+want, func() bool {
		text = b.health()
		return strings.Contains(text, want)
	})
}

func (b *broker) frame(ctx context.Context, t *testing.T) (*camera.NotifyResponse, error) {
	t.Helper()
	conn, err := grpc.NewClient(b.address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return camera.NewCameraClient(conn).GetFrame(ctx, &camera.NotifyRequest{}, grpc.WaitForReady(true))
}

// TestFrames decodes what the broker serves for each codec of the camera: the time in the picture
// is that of the newest frame.
func TestFrames(t *testing.T) {
	for _, codec := range []string{"h264", "h264-reordered", "mjpeg"} {
		for _, transport := range []string{"tcp", "udp"} {
			t.Run(codec+" "+transport, func(t *testing.T) {
				c := startCamera(t, "--codec", codec)
				b := startBroker(t, "RTSP_URL="+c.URL("127.0.0.1"), "RTSP_TRANSPORT="+transport, "CAMERA_NAME=gate")
				var last time.Time
				for i := range 5 {
					if i > 0 {
						<-time.After(100 * time.Millisecond)
					}
					reply, err := b.frame(t.Context(), t)
					require.NoError(t, err)
					require.Equal(t, "gate", reply.GetCamera())
					picture, err := jpeg.Decode(bytes.NewReader(reply.GetFrame()))
					require.NoError(t, err)
					made, err := rtsp.Time(picture, 640)
					require.NoError(t, err)
					t.Logf("the picture is %s old", time.Since(made))
					require.False(t, made.Before(last), "an older frame than before")
					last = made
				}
			})
		}
	}
}

// TestRefusals checks that errors state what to do.
func TestRefusals(t *testing.T) {
	digest := []string{"--username", "viewer", "--password", "secret"}
	basic := append([]string{"--basic"}, digest...)
	for name, c := range map[string]struct {
		camera  []string
		environ []string
		want    string
	}{
		"codec":          {camera: []string{"--codec", "vp8"}, want: "the stream has video in VP8: set the camera or PROFILE to H.264, H.265 or JPEG"},
		"no password":    {camera: digest, want: "the camera requires a user name and a password: set CAMERA_USERNAME and CAMERA_PASSWORD"},
		"wrong password": {camera: digest, environ: []string{"CAMERA_USERNAME=viewer", "CAMERA_PASSWORD=wrong"}, want: "the camera refuses the user name and the password"},
		"basic":          {camera: basic, environ: []string{"CAMERA_USERNAME=viewer", "CAMERA_PASSWORD=secret"}, want: "the camera offers only basic authentication"},
		"digest":         {camera: digest, environ: []string{"CAMERA_USERNAME=viewer", "CAMERA_PASSWORD=secret"}, want: "ok"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			camera := startCamera(t, c.camera...)
			b := startBroker(t, append(c.environ, "RTSP_URL="+camera.URL("127.0.0.1"))...)
			b.awaitHealth(t, c.want)
			if c.want != "ok" {
				_, err := b.frame(t.Context(), t)
				require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
				require.ErrorContains(t, err, c.want)
			}
			require.NotContains(t, b.log.String(), "secret")
		})
	}
}

// TestCameraRestarts checks that a camera that is away is reported, and that frames come again from
// the same broker.
func TestCameraRestarts(t *testing.T) {
	port := strings.Split(freeAddress(t), ":")[1]
	camera := startCamera(t, "--port", port)
	b := startBroker(t, "RTSP_URL="+camera.URL("127.0.0.1"))
	_, err := b.frame(t.Context(), t)
	require.NoError(t, err)
	require.NoError(t, camera.Stop())
	b.awaitHealth(t, "127.0.0.1:"+port)
	startCamera(t, "--port", port)
	b.awaitHealth(t, "ok")
	_, err = b.frame(t.Context(), t)
	require.NoError(t, err)
}

// TestViewersShareASession opens streams, one of which is not read. The camera has one session, and
// none after the last viewer has left.
func TestViewersShareASession(t *testing.T) {
	camera := startCamera(t, "--rate", "30")
	b := startBroker(t, "RTSP_URL="+camera.URL("127.0.0.1"))
	b.awaitHealth(t, "ok")
	ctx, leave := context.WithCancel(t.Context())
	open := func() io.ReadCloser {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+b.address+"/stream", nil)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, response.StatusCode)
		require.Regexp(t, `^video/mp4; codecs="avc1\.[0-9A-F]{6}"$`, response.Header.Get("Content-Type"))
		return response.Body
	}
	open() // is never read
	for range 4 {
		stream := open()
		_, err := io.CopyN(io.Discard, stream, 16<<10)
		require.NoError(t, err)
	}
	_, err := b.frame(t.Context(), t)
	require.NoError(t, err)
	begun, sessions := camera.Sessions()
	require.Equal(t, 1, begun)
	require.Equal(t, 1, sessions)
	leave()
	awaitTrue(t, "the session ends", func() bool { _, sessions := camera.Sessions(); return sessions == 0 })
	b.awaitHealth(t, "ok")
}

func awaitTrue(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !is() {
		select {
		case <-ctx.Done():
			require.FailNow(t, "timed out", what)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// memoryLimit is that of the sample onvif-video.yaml.
const memoryLimit = 200 << 20

// TestCost runs three cameras with five viewers each, and requests images, which are decoded. It
// logs the memory and the CPU time of each broker, and checks the memory limit of the sample.
func TestCost(t *testing.T) {
	const viewers = 5
	brokers := make([]*broker, 3)
	for i := range brokers {
		camera := startCamera(t, "--width", "1280", "--height", "720")
		brokers[i] = startBroker(t, "RTSP_URL="+camera.URL("127.0.0.1"))
		brokers[i].awaitHealth(t, "ok")
		for range viewers {
			response, err := http.Get("http://" + brokers[i].address + "/stream")
			require.NoError(t, err)
			t.Cleanup(func() { _ = response.Body.Close() })
			go func() { _, _ = io.Copy(io.Discard, response.Body) }()
		}
	}
	for _, b := range brokers {
		before, began := b.cpu(t), time.Now()
		<-time.After(watched(t))
		used := b.cpu(t) - before
		t.Logf("%d viewers of 1280 x 720 at 15 frames a second: %.1f MiB, %.1f %% of a CPU", viewers, float64(b.memory(t))/(1<<20), 100*used.Seconds()/time.Since(began).Seconds())
		require.Less(t, b.memory(t), memoryLimit)

		before, began = b.cpu(t), time.Now()
		for time.Since(began) < watched(t) {
			_, err := b.frame(t.Context(), t)
			require.NoError(t, err)
		}
		used = b.cpu(t) - before
		t.Logf("and images, without pause: %.1f MiB in the broker and the decoder, %.1f %% of a CPU", float64(b.memory(t))/(1<<20), 100*used.Seconds()/time.Since(began).Seconds())
		require.Less(t, b.memory(t), memoryLimit)
	}
}

// processes returns the broker and its children.
func (b *broker) processes(t *testing.T) []int {
	t.Helper()
	all := []int{b.pid}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", b.pid))
	require.NoError(t, err)
	for _, task := range tasks {
		text, _ := os.ReadFile(task) // threads can end
		for field := range strings.FieldsSeq(string(text)) {
			child, err := strconv.Atoi(field)
			require.NoError(t, err)
			all = append(all, child)
		}
	}
	return all
}

// memory returns the resident memory of the processes in bytes. It counts shared files twice.
func (b *broker) memory(t *testing.T) (sum int) {
	t.Helper()
	for _, pid := range b.processes(t) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		require.NoError(t, err)
		pages, err := strconv.Atoi(strings.Fields(string(text))[1])
		require.NoError(t, err)
		sum += pages * os.Getpagesize()
	}
	return sum
}

// cpu returns the CPU time of the processes (proc(5), utime and stime of /proc/PID/stat).
func (b *broker) cpu(t *testing.T) (sum time.Duration) {
	t.Helper()
	const tick = 10 * time.Millisecond
	for _, pid := range b.processes(t) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		require.NoError(t, err)
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')'):]))
		for _, field := range fields[12:14] {
			ticks, err := strconv.Atoi(field)
			require.NoError(t, err)
			sum += time.Duration(ticks) * tick
		}
	}
	return sum
}

// watched is the time for which cameras are watched: AKRI_CAMERA_SECONDS.
func watched(t *testing.T) time.Duration {
	t.Helper()
	seconds, err := strconv.Atoi(cmp.Or(os.Getenv("AKRI_CAMERA_SECONDS"), "3"))
	require.NoError(t, err)
	return time.Duration(seconds) * time.Second
}

// page has the functions of the test in the page: the time in the picture of a camera, and the
// number of frames that it has shown.
const page = `
window.made = stream => {
	const video = document.querySelector('figure[data-stream="' + stream + '"] video');
	if (!video || !video.videoWidth) return 0;
	const canvas = document.createElement('canvas');
	canvas.width = video.videoWidth; canvas.height = 16;
	const context = canvas.getContext('2d');
	context.drawImage(video, 0, 0);
	const pixels = context.getImageData(0, 8, canvas.width, 1).data;
	let milliseconds = 0, check = 0;
	for (let i = 0; i < 40; i++) {
		const bit = pixels[(i * 16 + 8) * 4] > 127 ? 1 : 0;
		if (i < 32) milliseconds = milliseconds * 2 + bit; else check = check * 2 + bit;
	}
	const bytes = [24, 16, 8, 0].map(shift => Math.floor(milliseconds / 2 ** shift) % 256);
	if (bytes.reduce((a, b) => a ^ b) !== check) return 0;
	return milliseconds;
};
window.age = stream => {
	const made = window.made(stream);
	return made ? (Date.now() % 2 ** 32) - made : -1;
};
window.frames = stream => {
	const video = document.querySelector('figure[data-stream="' + stream + '"] video');
	return video ? video.getVideoPlaybackQuality().totalVideoFrames : 0;
};
1`

// TestPage opens the page of the viewer with three cameras in Chromium, over TLS and with a token.
// It reads the time in the pictures: frames are shown for a while (AKRI_CAMERA_SECONDS), and the
// page follows the cameras.
func TestPage(t *testing.T) {
	secrets := writeSecrets(t)
	names := []string{"dock", "gate & yard", "hall"}
	_, port, err := net.SplitHostPort(freeAddress(t))
	require.NoError(t, err)
	for i, name := range names {
		camera := startCamera(t, "--username", "viewer", "--password", "secret")
		startBroker(t, append(secrets, "RTSP_URL="+camera.URL("127.0.0.1"), "CAMERA_USERNAME=viewer", "CAMERA_PASSWORD=secret",
			"CAMERA_NAME="+name, fmt.Sprintf("ADDRESS=127.0.0.%d:%s", 11+i, port))...)
	}
	address := startViewer(t, append(secrets, "CAMERAS=brokers.test", "CAMERAS_PORT="+port), "127.0.0.11", "127.0.0.12", "127.0.0.13")

	b := browser.Start(t, "https://"+address)
	b.SetHeader(t, "Authorization", "Bearer "+token)
	b.Do(t, "open the page", chromedp.Navigate("https://"+address+"/"))
	b.Number(t, page)
	streams := make([]string, len(names))
	before := make([]float64, len(names))
	for i, name := range names {
		streams[i] = strconv.Quote("cameras/" + url.PathEscape(name) + "/stream")
		b.Await(t, "window.made("+streams[i]+") > 0")
		before[i] = b.Number(t, "window.frames("+streams[i]+")")
	}
	b.CheckAccessibility(t)
	began := time.Now()
	ages := map[string][]float64{}
	for time.Since(began) < watched(t) {
		for i, name := range names {
			last := b.Number(t, "window.made("+streams[i]+")")
			b.Await(t, fmt.Sprintf("window.made(%s) !== 0 && window.made(%s) !== %f", streams[i], streams[i], last))
			if age := b.Number(t, "window.age("+streams[i]+")"); age >= 0 {
				ages[name] = append(ages[name], age)
			}
		}
	}
	seconds := time.Since(began).Seconds()
	for i, name := range names {
		slices.Sort(ages[name])
		require.NotEmpty(t, ages[name])
		shown := b.Number(t, "window.frames("+streams[i]+")") - before[i]
		require.Positive(t, shown)
		t.Logf("%s: %.1f frames a second for %.0f s; latency from the camera's clock to the page: p50 %.0f ms, max %.0f ms (%d samples)",
			name, shown/seconds, seconds, ages[name][len(ages[name])/2], ages[name][len(ages[name])-1], len(ages[name]))
	}
	b.Screenshot(t, "cameras")
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
func startViewer(t *testing.T, environ []string, addresses ...string) (address string) {
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
	run(t, append(environ, "ADDRESS="+address), "unshare", "--mount", "sh", "-c", `mount --bind "$0" /etc/hosts && exec "$1"`, hosts, filepath.Join(path, "camera-viewer"))
	awaitTrue(t, "the viewer answers", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return address
}
