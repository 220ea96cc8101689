package rtsp_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"image"
	"image/color"
	"image/jpeg"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"akri.sh/proto/camera"

	"akri.sh/integration/devices/rtsp"
)

// directory of all tests, which is removed after them.
var directory string

func TestMain(m *testing.M) { os.Exit(runInDirectory(m)) }

func runInDirectory(m *testing.M) int {
	var err error
	if directory, err = os.MkdirTemp("", "akri-camera-broker-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(directory) }()
	return m.Run()
}

// binaries builds the broker and the viewer once. It returns their directory.
var binaries = sync.OnceValues(func() (string, error) {
	command := exec.Command("go", "build", "-o", directory+"/", "./cmd/...")
	command.Dir = "../../../deploy/samples/camera-broker"
	output, err := command.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, output)
	}
	return directory, err
})

func startCamera(t *testing.T, arguments ...string) *rtsp.Camera {
	t.Helper()
	c, err := rtsp.Start(context.WithoutCancel(t.Context()), nil, arguments...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Stop() })
	return c
}

// broker is a running broker.
type broker struct {
	*program

	address string
}

// startBroker starts a broker, in plain text unless the settings have another value.
func startBroker(t *testing.T, environ ...string) *broker {
	t.Helper()
	path, err := binaries()
	require.NoError(t, err)
	address := freeAddress(t)
	standard := []string{"ADDRESS=" + address, "METRICS_ADDRESS=" + freeAddress(t), "ALLOW_PLAIN_TEXT=true"}
	return &broker{address: address, program: run(t, append(standard, environ...), filepath.Join(path, "camera-broker"))}
}

// program is a running process.
type program struct {
	log *buffer
	pid int
}

// run runs a program until the end of the test. It ends in the order of the cleanups: t.Context
// would end it before a page that shows its video is closed.
func run(t *testing.T, environ []string, path string, arguments ...string) *program {
	t.Helper()
	command := exec.CommandContext(context.WithoutCancel(t.Context()), path, arguments...)
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
	return &program{log: log, pid: command.Process.Pid}
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
// is that of the newest frame, and the colors are those of the camera.
func TestFrames(t *testing.T) {
	for _, codec := range []string{"h264", "h264-high", "h264-reordered", "mjpeg"} {
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
					made, err := c.Time(picture)
					require.NoError(t, err)
					t.Logf("the picture is %s old", time.Since(made))
					require.False(t, made.Before(last), "an older frame than before")
					last = made
					if codec != "mjpeg" {
						requireBar(t, picture)
					}
				}
				transports, _ := c.Sessions()
				require.Equal(t, []string{transport}, transports)
			})
		}
	}
}

// requireBar requires the bar and the background of server.py. Video has them in the limited range,
// and JPEG images in the full range (ITU-T T.871).
func requireBar(t *testing.T, picture image.Image) {
	t.Helper()
	const (
		bright, dark, blue, red = 214, 93, 108, 164
		row                     = 200
		// tolerance is that of two compressions, and edges are the pixels that these blur.
		tolerance, edges = 12, 16
	)
	require.Equal(t, image.Rect(0, 0, width, height), picture.Bounds())
	var bar []int
	background := 0
	for x := range width {
		c, ok := picture.At(x, row).(color.YCbCr)
		require.True(t, ok)
		require.InDelta(t, blue, float64(c.Cb), tolerance)
		require.InDelta(t, red, float64(c.Cr), tolerance)
		switch y := int(c.Y); {
		case y > bright-tolerance && y < bright+tolerance:
			bar = append(bar, x)
		case y > dark-tolerance && y < dark+tolerance:
			background++
		}
	}
	require.InDelta(t, 32, len(bar), edges)
	require.Less(t, bar[len(bar)-1]-bar[0], 32, "the bar is in one place")
	require.GreaterOrEqual(t, len(bar)+background, width-edges)
}

// TestHighProfile checks that the video of the camera with the profile High is passed through as
// such, with CABAC. TestFrames decodes it, and TestPage plays it.
func TestHighProfile(t *testing.T) {
	t.Parallel()
	c := startCamera(t, "--codec", "h264-high")
	b := startBroker(t, "RTSP_URL="+c.URL("127.0.0.1"))
	b.awaitHealth(t, "ok")
	response, err := http.Get("http://" + b.address + "/stream")
	require.NoError(t, err)
	defer response.Body.Close()
	require.Regexp(t, `^video/mp4; codecs="avc1\.6400[0-9A-F]{2}"$`, response.Header.Get("Content-Type"))

	header := make([]byte, 2<<10)
	_, err = io.ReadFull(response.Body, header)
	require.NoError(t, err)
	// The parameter sets are in avcC (ISO/IEC 14496-15, 5.3.3.1). entropy_coding_mode_flag follows
	// the numbers of both, which are 0 and have one bit (ITU-T H.264, 7.3.2.2).
	_, sets, found := bytes.Cut(header, []byte("avcC"))
	require.True(t, found)
	require.EqualValues(t, 100, sets[1], "profile_idc")
	picture := sets[8+int(binary.BigEndian.Uint16(sets[6:]))+3:]
	require.EqualValues(t, 0x68, picture[0], "nal_unit_type")
	require.EqualValues(t, 0b111, picture[1]>>5, "CABAC")
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
	t.Parallel()
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
	t.Parallel()
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
	transports, sessions := camera.Sessions()
	require.Equal(t, []string{"tcp"}, transports)
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
