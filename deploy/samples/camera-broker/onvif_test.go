package camerabroker_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	camerabroker "akri.sh/deploy/samples/camera-broker"
)

// answers are what a camera reports.
type answers struct {
	media, stream string
	profiles      string
}

const mainAndSub = `<Profiles token="0"><Name>audio</Name></Profiles>` +
	`<Profiles token="1"><Name>main</Name><VideoEncoderConfiguration><Encoding>H264</Encoding><Resolution><Width>1920</Width><Height>1080</Height></Resolution></VideoEncoderConfiguration></Profiles>` +
	`<Profiles token="2"><Name>sub</Name><VideoEncoderConfiguration><Encoding>JPEG</Encoding><Resolution><Width>640</Width><Height>360</Height></Resolution></VideoEncoderConfiguration></Profiles>`

// serveONVIF serves a camera. It returns the URL of its device service.
func serveONVIF(t *testing.T, a answers) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		reply := map[string]string{
			"GetSystemDateAndTime": "",
			"GetCapabilities":      "<Capabilities><Media><XAddr>" + a.media + "</XAddr></Media></Capabilities>",
			"GetProfiles":          a.profiles,
			"GetStreamUri":         "<MediaUri><Uri>" + a.stream + "</Uri></MediaUri>",
		}
		for operation, content := range reply {
			if strings.Contains(string(body), "<o:"+operation+" ") {
				if operation == "GetStreamUri" {
					_, token, _ := strings.Cut(string(body), "<o:ProfileToken>")
					token, _, _ = strings.Cut(token, "<")
					content = strings.ReplaceAll(content, "TOKEN", token)
				}
				_, _ = fmt.Fprintf(w, `<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"><s:Body><%[1]sResponse>%[2]s</%[1]sResponse></s:Body></s:Envelope>`, operation, content)
				return
			}
		}
		http.Error(w, "unknown operation", http.StatusBadRequest)
	}))
	t.Cleanup(server.Close)
	return server
}

func resolve(t *testing.T, server *httptest.Server, profile string) (*url.URL, error) {
	t.Helper()
	settings, err := camerabroker.Read([]string{
		"ALLOW_PLAIN_TEXT=true", "ONVIF_DEVICE_SERVICE_URL=" + server.URL + "/onvif/device_service", "PROFILE=" + profile,
		"CAMERA_USERNAME=viewer", "CAMERA_PASSWORD=secret",
	})
	require.NoError(t, err)
	var log bytes.Buffer
	address, err := camerabroker.Resolve(t.Context(), settings, slog.New(slog.NewJSONHandler(&log, nil)))
	for _, text := range []string{log.String(), fmt.Sprint(err)} {
		require.NotContains(t, text, "secret")
		require.NotContains(t, text, "user:password")
	}
	return address, err
}

func TestProfiles(t *testing.T) {
	server := serveONVIF(t, answers{profiles: mainAndSub, stream: "rtsp://10.0.0.1/TOKEN"})
	base, err := url.Parse(server.URL)
	require.NoError(t, err)
	server = serveONVIF(t, answers{profiles: mainAndSub, media: base.String() + "/media", stream: "rtsp://10.0.0.1/TOKEN"})
	for profile, want := range map[string]string{"": "/1", "main": "/1", "sub": "/2", "2": "/2", "0": "/0"} {
		address, err := resolve(t, server, profile)
		require.NoError(t, err)
		require.Equal(t, want, address.Path, profile)
	}
	_, err = resolve(t, server, "other")
	require.ErrorContains(t, err, `PROFILE="other": the camera has the media profiles "audio" (, 0 x 0), "main" (H264, 1920 x 1080), "sub" (JPEG, 640 x 360)`)
}

// TestPasswordStaysWithTheCamera lets cameras name the addresses of another host. That host
// receives no request, and the address of the stream has the camera's own host and no credentials.
func TestPasswordStaysWithTheCamera(t *testing.T) {
	var requests atomic.Int64
	resolved := 0
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer other.Close()
	host := strings.TrimPrefix(strings.Replace(other.URL, "127.0.0.1", "localhost", 1), "http://")
	for _, media := range []string{"http://" + host + "/media", "http://user:password@" + host + "/", "http://[::1]/", "ftp://" + host + "/", "//" + host, "::", ""} {
		for _, stream := range []string{
			"rtsp://" + host + "/live", "rtsp://user:password@" + host + "/live?a=b#c", "rtsps://evil.example/", "http://" + host + "/", "rtsp:opaque", "rtsp://", "%", "",
		} {
			server := serveONVIF(t, answers{profiles: mainAndSub, media: media, stream: stream})
			device, err := url.Parse(server.URL)
			require.NoError(t, err)
			// A media service on the camera's own port.
			own := strings.ReplaceAll(media, host, "10.0.0.1:"+device.Port())
			server.Config.Handler = serveONVIF(t, answers{profiles: mainAndSub, media: own, stream: stream}).Config.Handler
			address, err := resolve(t, server, "")
			if err != nil {
				continue
			}
			resolved++
			require.Equal(t, "127.0.0.1", address.Hostname(), "%s, %s", media, stream)
			require.Nil(t, address.User)
			require.Contains(t, []string{"rtsp", "rtsps"}, address.Scheme)
		}
	}
	require.Positive(t, resolved)
	require.Zero(t, requests.Load())
}

// TestRedirects lets cameras answer each operation with a redirect to another host, which receives
// no request: it would get the password's digest.
func TestRedirects(t *testing.T) {
	var requests atomic.Int64
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
	defer other.Close()
	for _, operation := range []string{"GetSystemDateAndTime", "GetCapabilities", "GetProfiles", "GetStreamUri"} {
		for _, status := range []int{http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
			camera := serveONVIF(t, answers{profiles: mainAndSub, stream: "rtsp://10.0.0.1/TOKEN"})
			own := serveONVIF(t, answers{profiles: mainAndSub, media: camera.URL, stream: "rtsp://10.0.0.1/TOKEN"}).Config.Handler
			camera.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				if strings.Contains(string(body), "<o:"+operation+" ") {
					http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", "localhost", 1), status)
					return
				}
				r.Body = io.NopCloser(bytes.NewReader(body))
				own.ServeHTTP(w, r)
			})
			_, err := resolve(t, camera, "")
			require.ErrorContains(t, err, fmt.Sprintf("HTTP status %d", status), operation)
		}
	}
	require.Zero(t, requests.Load())
}
