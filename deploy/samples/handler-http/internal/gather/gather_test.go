package gather_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/deploy/samples/handler-http/internal/gather"
)

// TestHandler reads two devices through their brokers, as the application does.
func TestHandler(t *testing.T) {
	state := `{"on": true}`
	device := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/lamp" {
			w.WriteHeader(http.StatusNotFound)
		}
		_, _ = w.Write([]byte(state))
	}))
	t.Cleanup(device.Close)
	lamp := serve(t, map[string]string{"lamp": device.URL + "/lamp"})
	fan := serve(t, map[string]string{"fan": device.URL + "/fan"})
	application := serve(t, map[string]string{"first": lamp, "second": lamp})

	status, text := get(t, application)
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, `{"first": {"lamp": {"on": true}}, "second": {"lamp": {"on": true}}}`, text)
	status, text = get(t, fan)
	require.Equal(t, http.StatusBadGateway, status)
	require.Contains(t, text, "fan: get "+device.URL+"/fan: 404 Not Found")

	// Responses are read again for each request.
	state = `{"on": false}`
	_, text = get(t, lamp)
	require.JSONEq(t, `{"lamp": {"on": false}}`, text)
	state = "<html>"
	status, text = get(t, lamp)
	require.Equal(t, http.StatusBadGateway, status)
	require.Contains(t, text, "is not JSON")
	device.Close()
	status, text = get(t, lamp)
	require.Equal(t, http.StatusBadGateway, status)
	require.Contains(t, text, "lamp: ")
}

func serve(t *testing.T, urls map[string]string) string {
	t.Helper()
	server := httptest.NewServer(gather.Handler(urls))
	t.Cleanup(server.Close)
	return server.URL
}

func get(t *testing.T, url string) (status int, text string) {
	t.Helper()
	response, err := http.Get(url)
	require.NoError(t, err)
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(content)
}
