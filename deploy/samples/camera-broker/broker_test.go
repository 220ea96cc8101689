package camerabroker_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	camerabroker "akri.sh/deploy/samples/camera-broker"
)

func TestSettings(t *testing.T) {
	const path = "/dev/video0"
	for name, c := range map[string]struct {
		environment map[string]string
		want        camerabroker.Settings
		err         string
	}{
		"defaults": {
			environment: map[string]string{"UDEV_DEVNODE": path},
			want:        camerabroker.Settings{Path: path, Format: "MJPG", Width: 640, Height: 480, FramesPerSecond: 10},
		},
		"all": {
			environment: map[string]string{"UDEV_DEVNODE": path, "FORMAT": "YUYV", "RESOLUTION_WIDTH": "1280", "RESOLUTION_HEIGHT": "720", "FRAMES_PER_SECOND": "30"},
			want:        camerabroker.Settings{Path: path, Format: "YUYV", Width: 1280, Height: 720, FramesPerSecond: 30},
		},
		"several errors": {
			environment: map[string]string{"FORMAT": "H264", "RESOLUTION_WIDTH": "wide", "FRAMES_PER_SECOND": "0"},
			err: `RESOLUTION_WIDTH="wide": must be a number from 1 to 65535
FRAMES_PER_SECOND="0": must be a number from 1 to 65535
UDEV_DEVNODE is not set: the Pod must request a device of the handler udev
FORMAT="H264": must be MJPG or YUYV`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := camerabroker.Read(func(name string) string { return c.environment[name] })
			if c.err != "" {
				require.EqualError(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

func TestServe(t *testing.T) {
	broker := camerabroker.New(camerabroker.Settings{}, slog.New(slog.DiscardHandler))
	server := httptest.NewServer(broker.Handler())
	defer server.Close()

	for _, path := range []string{"/healthz", "/snapshot.jpg"} {
		status, body := get(t, server.URL+path)
		require.Equal(t, http.StatusServiceUnavailable, status, path)
		require.Equal(t, "no frame yet\n", body)
	}

	broker.Publish([]byte("first"), nil)
	status, _ := get(t, server.URL+"/healthz")
	require.Equal(t, http.StatusOK, status)
	status, body := get(t, server.URL+"/snapshot.jpg")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "first", body)

	response, err := http.Get(server.URL)
	require.NoError(t, err)
	defer response.Body.Close()
	_, parameters, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	require.NoError(t, err)
	parts := multipart.NewReader(response.Body, parameters["boundary"])
	require.Equal(t, "first", next(t, parts))
	broker.Publish([]byte("second"), nil)
	require.Equal(t, "second", next(t, parts))

	broker.Publish(nil, errors.New("the frame is damaged"))
	status, body = get(t, server.URL+"/snapshot.jpg")
	require.Equal(t, http.StatusBadGateway, status)
	require.Equal(t, "the frame is damaged\n", body)
	broker.Publish([]byte("third"), nil)
	require.Equal(t, "third", next(t, parts), "the stream leaves out damaged frames")
}

// TestNoCamera checks that a broker without a camera ends, so that the kubelet restarts it.
func TestNoCamera(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	broker := camerabroker.New(camerabroker.Settings{Path: "/dev/null"}, slog.New(slog.DiscardHandler))
	require.EqualError(t, broker.Run(t.Context(), listener), "/dev/null: VIDIOC_QUERYCAP: inappropriate ioctl for device")
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	response, err := http.Get(url)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(text)
}

// next returns the next part. The reader finds its end only when the following part begins, so
// the length comes from the header.
func next(t *testing.T, parts *multipart.Reader) string {
	t.Helper()
	part, err := parts.NextRawPart()
	require.NoError(t, err)
	require.Equal(t, "image/jpeg", part.Header.Get("Content-Type"))
	var length int
	_, err = fmt.Sscan(part.Header.Get("Content-Length"), &length)
	require.NoError(t, err)
	image := make([]byte, length)
	_, err = io.ReadFull(part, image)
	require.NoError(t, err)
	return string(image)
}
