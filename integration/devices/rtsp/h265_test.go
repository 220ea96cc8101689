package rtsp_test

import (
	"image"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"akri.sh/integration/browser"
)

const (
	width  = 640
	height = 360
)

// TestH265 plays the stream of cameras with H.265 with GStreamer, which reads fragmented MP4, and
// libde265. The time in each picture shows that it is complete and in its order.
func TestH265(t *testing.T) {
	for _, codec := range []string{"h265", "h265-reordered"} {
		t.Run(codec, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			camera := startCamera(t, "--codec", codec, "--gop", "10")
			b := startBroker(t, "RTSP_URL="+camera.URL("127.0.0.1"), "CAMERA_NAME=gate")
			b.awaitHealth(t, "ok")
			response, err := http.Get("http://" + b.address + "/stream")
			require.NoError(t, err)
			defer response.Body.Close()
			require.Equal(t, http.StatusOK, response.StatusCode)
			require.Equal(t, `video/mp4; codecs="hvc1.1.6.L63.90"`, response.Header.Get("Content-Type"))

			pictures := decode(t, response.Body)
			times := []time.Time{began}
			for range 35 {
				picture := image.NewGray(image.Rect(0, 0, width, height))
				_, err := io.ReadFull(pictures, picture.Pix)
				require.NoError(t, err)
				made, err := camera.Time(picture)
				require.NoError(t, err)
				times = append(times, made)
			}
			// A camera that was delayed makes several pictures within the 10 ms of its clock.
			require.True(t, slices.IsSortedFunc(append(times, time.Now()), time.Time.Compare), "%v", times)
			first, last := times[1], times[len(times)-1]
			require.True(t, last.After(first), "all pictures are from %s", first)
			t.Logf("the picture is %s old", time.Since(last))
		})
	}
}

// decode returns the luma of the frames in a file of MP4 with H.265, which it reads meanwhile.
func decode(t *testing.T, file io.Reader) io.Reader {
	t.Helper()
	command := exec.CommandContext(t.Context(), "gst-launch-1.0", "--quiet", "fdsrc", "!", "qtdemux", "!", "video/x-h265,stream-format=hvc1", "!", "h265parse", "!", "libde265dec", "!",
		"videoconvert", "!", "video/x-raw,format=GRAY8", "!", "fdsink", "sync=false")
	log := &buffer{}
	command.Stdin, command.Stderr = file, log
	output, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return output
}

// TestH265IsReported checks what states the reason where H.265 is not decoded: the replies with
// images, and the page in a Chromium without H.265, which Debian's is.
func TestH265IsReported(t *testing.T) {
	t.Parallel()
	camera := startCamera(t, "--codec", "h265")
	b := startBroker(t, "RTSP_URL="+camera.URL("127.0.0.1"), "CAMERA_NAME=gate")
	const reason = "camera gate: the video is not decoded: it is H.265; set the camera or PROFILE to H.264 or JPEG"
	_, err := b.frame(t.Context(), t)
	require.Equal(t, codes.Unimplemented, status.Code(err), "%v", err)
	require.Equal(t, reason, status.Convert(err).Message())

	response, err := http.Get("http://" + b.address + "/snapshot.jpg")
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusNotImplemented, response.StatusCode)
	require.Equal(t, reason+"\n", string(text))

	page := browser.Start(t, "http://"+b.address)
	page.Do(t, "open the page", chromedp.Navigate("http://"+b.address+"/"))
	page.Await(t, `document.querySelector('figure [role=status]').textContent === `+
		"`This browser cannot play H.265 (video/mp4; codecs=\"hvc1.1.6.L63.90\"). Set the camera or PROFILE to H.264.`")
	page.Await(t, `document.querySelector('figure .picture').offsetHeight === 0`)
	page.CheckAccessibility(t)
	page.Screenshot(t, "h265")
}
