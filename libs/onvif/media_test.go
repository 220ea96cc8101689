package onvif_test

import (
	"encoding/xml"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/onvif"
)

// TestMediaService checks the calls from a device service to the address of a stream. The token of
// the profile has characters that XML reserves.
func TestMediaService(t *testing.T) {
	const token = `a"<b>&`
	actions := map[string]bool{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var request struct {
			Body struct {
				Capabilities *struct{ Category string } `xml:"http://www.onvif.org/ver10/device/wsdl GetCapabilities"`
				Profiles     *struct{}                  `xml:"http://www.onvif.org/ver10/media/wsdl GetProfiles"`
				Stream       *struct {
					Token    string `xml:"ProfileToken"`
					Protocol string `xml:"StreamSetup>Transport>Protocol"`
				} `xml:"http://www.onvif.org/ver10/media/wsdl GetStreamUri"`
			}
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || xml.Unmarshal(body, &request) != nil {
			http.Error(w, "not SOAP", http.StatusBadRequest)
			return
		}
		actions[r.Header.Get("Content-Type")] = true
		switch {
		case request.Body.Capabilities != nil && request.Body.Capabilities.Category == "Media":
			_, _ = io.WriteString(w, envelope("<GetCapabilitiesResponse><Capabilities><Media><XAddr> http://camera/media </XAddr></Media></Capabilities></GetCapabilitiesResponse>"))
		case request.Body.Profiles != nil:
			_, _ = io.WriteString(w, envelope(`<GetProfilesResponse><Profiles token="a&quot;&lt;b&gt;&amp;"><Name>main</Name><VideoEncoderConfiguration>`+
				`<Encoding>H264</Encoding><Resolution><Width>1920</Width><Height>1080</Height></Resolution></VideoEncoderConfiguration></Profiles>`+
				`<Profiles token="audio"><Name>audio</Name></Profiles></GetProfilesResponse>`))
		case request.Body.Stream != nil && request.Body.Stream.Token == token && request.Body.Stream.Protocol == "RTSP":
			_, _ = io.WriteString(w, envelope("<GetStreamUriResponse><MediaUri><Uri> rtsp://camera/main </Uri></MediaUri></GetStreamUriResponse>"))
		default:
			http.Error(w, "unexpected request", http.StatusBadRequest)
		}
	}))
	defer server.Close()
	calls, target := client(time.Minute, nil), onvif.Target{URL: server.URL}

	media, err := calls.MediaService(t.Context(), target)
	require.NoError(t, err)
	require.Equal(t, "http://camera/media", media)
	profiles, err := calls.Profiles(t.Context(), target)
	require.NoError(t, err)
	require.Equal(t, []onvif.Profile{{Token: token, Name: "main", Encoding: "H264", Width: 1920, Height: 1080}, {Token: "audio", Name: "audio"}}, profiles)
	uri, err := calls.StreamURI(t.Context(), target, token)
	require.NoError(t, err)
	require.Equal(t, "rtsp://camera/main", uri)
	require.Contains(t, actions, `application/soap+xml; charset=utf-8; action="http://www.onvif.org/ver10/media/wsdl/GetStreamUri";`)
}

func TestDeviceWithoutMediaService(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, envelope("<GetCapabilitiesResponse><Capabilities/></GetCapabilitiesResponse>"))
	}))
	defer server.Close()
	_, err := client(time.Minute, nil).MediaService(t.Context(), onvif.Target{URL: server.URL})
	require.EqualError(t, err, "the device has no media service")
}
