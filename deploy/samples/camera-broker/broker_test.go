package camerabroker_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	camerabroker "akri.sh/deploy/samples/camera-broker"
	"akri.sh/deploy/samples/camera-broker/internal/video"
	"akri.sh/libs/broker"
	"akri.sh/libs/broker/brokertest"
	"akri.sh/proto/camera"
)

func TestSettings(t *testing.T) {
	const node = "/dev/video0"
	parse := func(text string) *url.URL {
		address, err := url.Parse(text)
		require.NoError(t, err)
		return address
	}
	standard := func(change func(*camerabroker.Settings)) camerabroker.Settings {
		s := camerabroker.Settings{
			Format: "MJPG", Width: 640, Height: 480, FramesPerSecond: 10,
			Address: ":8083", MetricsAddress: ":8080", Server: broker.Server{AllowPlainText: true},
		}
		change(&s)
		return s
	}
	for name, c := range map[string]struct {
		environment []string
		want        camerabroker.Settings
		err         string
	}{
		"USB camera": {
			environment: []string{"UDEV_DEVNODE=" + node, "UDEV_DEVNODE_8120FE=" + node},
			want:        standard(func(s *camerabroker.Settings) { s.Name, s.Path = node, node }),
		},
		"USB camera of upstream's brokers": {
			environment: []string{"UDEV_DEVNODE_8120FE=" + node, "FORMAT=YUYV", "RESOLUTION_WIDTH=1280", "RESOLUTION_HEIGHT=720", "FRAMES_PER_SECOND=30"},
			want: standard(func(s *camerabroker.Settings) {
				s.Name, s.Path, s.Format, s.Width, s.Height, s.FramesPerSecond = node, node, "YUYV", 1280, 720, 30
			}),
		},
		"ONVIF": {
			environment: []string{
				"ONVIF_DEVICE_SERVICE_URL=http://192.0.2.1/onvif/device_service", "ONVIF_DEVICE_UUID=3fa1fe68", "PROFILE=sub",
				"CAMERA_USERNAME=viewer", "CAMERA_PASSWORD=secret", "RTSP_TRANSPORT=udp",
			},
			want: standard(func(s *camerabroker.Settings) {
				s.Name, s.Profile, s.UDP = "3fa1fe68", "sub", true
				s.Service, s.Credentials = parse("http://192.0.2.1/onvif/device_service"), url.UserPassword("viewer", "secret")
			}),
		},
		"credentials that a device sets": { // Akri sets each property with and without the digest
			environment: []string{
				"ONVIF_DEVICE_SERVICE_URL=http://192.0.2.1/onvif/device_service",
				"CAMERA_USERNAME=viewer", "CAMERA_USERNAME_8120FE=viewer", "CAMERA_PASSWORD=secret", "CAMERA_PASSWORD_8120FE=secret",
			},
			want: standard(func(s *camerabroker.Settings) {
				s.Name, s.Service = "192.0.2.1", parse("http://192.0.2.1/onvif/device_service")
			}),
		},
		"RTSP": {
			environment: []string{"RTSP_URL=rtsp://[2001:db8::1]/stream"},
			want: standard(func(s *camerabroker.Settings) {
				s.Name, s.Stream = "2001:db8::1", parse("rtsp://[2001:db8::1]/stream")
			}),
		},
		"no camera": {
			environment: []string{"RTSP_URL_OTHER=x"},
			err: "none of UDEV_DEVNODE, ONVIF_DEVICE_SERVICE_URL and RTSP_URL is set: the Pod must request a device " +
				"of the handler udev or onvif, or name a stream",
		},
		"several errors": {
			environment: []string{
				"FORMAT=H264", "RESOLUTION_WIDTH=wide", "FRAMES_PER_SECOND=0", "RTSP_TRANSPORT=http", "CAMERA_PASSWORD=secret",
				"RTSP_URL=rtsp://viewer:secret@192.0.2.1/", "ONVIF_DEVICE_SERVICE_URL=ftp://192.0.2.1/", "CAMERA_CA_FILE=/nowhere",
			},
			err: `RESOLUTION_WIDTH="wide": must be a number from 1 to 65535
FRAMES_PER_SECOND="0": must be a number from 1 to 65535
ONVIF_DEVICE_SERVICE_URL: must begin with http://, not ftp://
RTSP_URL: must have no user name and password: set CAMERA_USERNAME and CAMERA_PASSWORD from a Secret
FORMAT="H264": must be MJPG or YUYV
RTSP_TRANSPORT="http": must be tcp or udp
CAMERA_PASSWORD is set, so CAMERA_USERNAME must be set
CAMERA_CA_FILE: stat /nowhere: no such file or directory`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := camerabroker.Read(append(c.environment, "ALLOW_PLAIN_TEXT=true"))
			if c.err != "" {
				require.EqualError(t, err, c.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, c.want, got)
		})
	}
}

// TestSettingsOfDevices sets each setting of README.md as a device does, with and without the
// digest. Nodes choose the properties of devices, so these do not set where the password of the
// camera is sent, or who may read its video.
func TestSettingsOfDevices(t *testing.T) {
	properties := map[string]string{
		"ONVIF_DEVICE_SERVICE_URL": "http://192.0.2.2/", "ONVIF_DEVICE_UUID": "u", "PROFILE": "sub", "RTSP_URL": "rtsp://192.0.2.2/",
		"UDEV_DEVNODE": "/dev/video1", "FORMAT": "YUYV", "RESOLUTION_WIDTH": "1", "RESOLUTION_HEIGHT": "1", "FRAMES_PER_SECOND": "1",
		"CAMERA_NAME": "gate",
	}
	others := map[string]string{
		"RTSP_TRANSPORT": "udp", "CAMERA_USERNAME": "u", "CAMERA_PASSWORD": "p", "CAMERA_CA_FILE": "/none",
		"TLS_CERT_FILE": "/c", "TLS_KEY_FILE": "/k", "TOKEN_FILE": "/t", "ALLOW_PLAIN_TEXT": "true", "ADDRESS": ":1", "METRICS_ADDRESS": ":1",
	}
	brokertest.CheckProperties(t, "README.md", nil, properties, others, func(environ []string) (any, error) {
		return camerabroker.Read(environ)
	})
}

// source is a camera that sends the images that the test publishes.
type source struct {
	images chan image
}

type image struct {
	content []byte
	err     error
}

func (s source) Run(ctx context.Context, emit func(*video.Frame)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case i := <-s.images:
			if i.content == nil && i.err == nil {
				return errors.New("the camera was unplugged")
			}
			emit(video.NewImage(0, func() ([]byte, error) { return i.content, i.err }))
		}
	}
}

// start returns a source and the address of its broker.
func start(t *testing.T) (source, string) {
	t.Helper()
	camera, _, address := startBroker(t)
	return camera, address
}

// startBroker returns a source, its broker and the address of the broker.
func startBroker(t *testing.T) (source, *camerabroker.Broker, string) {
	t.Helper()
	executable, err := os.Executable()
	require.NoError(t, err)
	camera := source{make(chan image)}
	settings := camerabroker.Settings{Name: "gate", Server: broker.Server{AllowPlainText: true}}
	b := camerabroker.NewWithSource(settings, camera, slog.New(slog.DiscardHandler), executable, decodeArgument)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx, listener) }()
	t.Cleanup(func() {
		stop()
		require.NoError(t, <-done)
	})
	return camera, b, listener.Addr().String()
}

func TestServeImages(t *testing.T) {
	camera, address := start(t)
	base := "http://" + address
	code, body := get(t, base+"/healthz")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "not ready: the log has the reason\n", body)

	// The broker opens a session to try the camera.
	camera.images <- image{content: []byte("first")}
	require.Eventually(t, func() bool { code, _ := get(t, base+"/healthz"); return code == http.StatusOK }, time.Minute, time.Millisecond)
	code, body = get(t, base+"/snapshot.jpg")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "first", body)

	response, err := http.Get(base + "/stream")
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, "gate", response.Header.Get("Akri-Camera"))
	_, parameters, err := mime.ParseMediaType(response.Header.Get("Content-Type"))
	require.NoError(t, err)
	parts := multipart.NewReader(response.Body, parameters["boundary"])
	require.Equal(t, "first", next(t, parts))
	camera.images <- image{content: []byte("second")}
	require.Equal(t, "second", next(t, parts))

	camera.images <- image{err: errors.New("the frame is damaged")}
	camera.images <- image{content: []byte("third")}
	require.Equal(t, "third", next(t, parts), "the stream leaves out damaged frames")

	camera.images <- image{}
	_, err = parts.NextRawPart()
	require.Error(t, err, "the stream ends with the session")
	code, body = get(t, base+"/snapshot.jpg")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.Equal(t, "camera gate: the camera was unplugged\n", body)
	camera.images <- image{content: []byte("fourth")}
	// The session has received the image, and the broker serves it at some time after that.
	require.Eventually(t, func() bool { _, body := get(t, base+"/snapshot.jpg"); return body == "fourth" }, time.Minute, time.Millisecond)
}

func TestGetFrame(t *testing.T) {
	source, address := start(t)
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	client := camera.NewCameraClient(conn)
	source.images <- image{content: []byte("first")}
	reply, err := client.GetFrame(t.Context(), &camera.NotifyRequest{})
	require.NoError(t, err)
	require.Equal(t, "first", string(reply.GetFrame()))
	require.Equal(t, "gate", reply.GetCamera())

	source.images <- image{err: errors.New("the frame is damaged")}
	require.Eventually(t, func() bool {
		_, err = client.GetFrame(t.Context(), &camera.NotifyRequest{})
		return status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "camera gate: the frame is damaged")
	}, time.Minute, time.Millisecond)
}

// TestSlowViewer has a viewer that does not read its stream. It does not delay another one, and its
// stream ends after clientTimeout.
func TestSlowViewer(t *testing.T) {
	var http1, http2 http.Protocols
	http1.SetHTTP1(true)
	http2.SetUnencryptedHTTP2(true)
	for name, protocols := range map[string]http.Protocols{"HTTP 1": http1, "HTTP 2": http2} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			camera, b, address := startBroker(t)
			camera.images <- image{content: []byte("first")}
			openStream(t, address, protocols) // is never read
			read := openStream(t, address, protocols)
			_, parameters, err := mime.ParseMediaType(read.Header.Get("Content-Type"))
			require.NoError(t, err)
			parts := multipart.NewReader(read.Body, parameters["boundary"])
			require.Equal(t, "first", next(t, parts))
			awaitReaders(t, b, 2)

			// Large images fill the buffers of the connection that is not read.
			each := time.NewTicker(50 * time.Millisecond)
			defer each.Stop()
			for began := time.Now(); camerabroker.Readers(b) == 2; <-each.C {
				require.Less(t, time.Since(began), time.Minute, "the stream that is not read does not end")
				content := strings.Repeat("a", 1<<20)
				camera.images <- image{content: []byte(content)}
				require.Len(t, next(t, parts), len(content))
			}
			require.Equal(t, 1, camerabroker.Readers(b))
			camera.images <- image{content: []byte("last")}
			require.Equal(t, "last", next(t, parts))
		})
	}
}

// openStream opens a stream with a connection of its own.
func openStream(t *testing.T, address string, protocols http.Protocols) *http.Response {
	t.Helper()
	transport := &http.Transport{Protocols: &protocols, DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		if err == nil {
			err = conn.(*net.TCPConn).SetReadBuffer(64 << 10)
		}
		return conn, err
	}}
	t.Cleanup(transport.CloseIdleConnections)
	response, err := (&http.Client{Transport: transport}).Get("http://" + address + "/stream")
	require.NoError(t, err)
	t.Cleanup(func() { _ = response.Body.Close() })
	require.Equal(t, http.StatusOK, response.StatusCode)
	return response
}

// awaitReaders awaits a number of streams. The broker closes that in which it tries the camera.
func awaitReaders(t *testing.T, b *camerabroker.Broker, want int) {
	t.Helper()
	require.Eventually(t, func() bool { return camerabroker.Readers(b) == want }, time.Minute, time.Millisecond)
}

// TestNoCamera checks that a broker without a camera reports why.
func TestNoCamera(t *testing.T) {
	settings, err := camerabroker.Read([]string{"UDEV_DEVNODE=/dev/null", "ALLOW_PLAIN_TEXT=true"})
	require.NoError(t, err)
	require.Equal(t, "/dev/null", settings.Path)
	err = camerabroker.Source(settings).Run(t.Context(), nil)
	require.EqualError(t, err, "/dev/null: VIDIOC_QUERYCAP: inappropriate ioctl for device")
}

func get(t *testing.T, url string) (code int, body string) {
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
	content := make([]byte, length)
	_, err = io.ReadFull(part, content)
	require.NoError(t, err)
	return string(bytes.TrimSpace(content))
}
