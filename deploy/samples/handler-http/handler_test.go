package handlerhttp_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	handlerhttp "akri.sh/deploy/samples/handler-http"
	"akri.sh/libs/handler"
)

func TestList(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/devices":
			_, _ = w.Write([]byte(`[{"name": "lamp", "url": "http://lamp"}, {"name": "fan"}]`))
		case "/private":
			if r.Header.Get("Authorization") != "Bearer secret" {
				w.WriteHeader(http.StatusUnauthorized)
			}
			_, _ = w.Write([]byte("[]"))
		case "/nameless":
			_, _ = w.Write([]byte(`[{"name": "lamp"}, {"url": "http://fan"}]`))
		case "/two":
			_, _ = w.Write([]byte(`[{"name": "lamp"}] [{"name": "fan"}]`))
		case "/long":
			_, _ = w.Write([]byte(`[{"name": "` + strings.Repeat("x", handlerhttp.MaxResponse) + `"}]`))
		case "/cut":
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte(`[{"name": "lamp"}]`))
		default:
			_, _ = w.Write([]byte("<html>"))
		}
	}))
	t.Cleanup(server.Close)
	for name, test := range map[string]struct {
		details, token string
		ids            []string
		err            string
	}{
		"devices":     {details: "url: " + server.URL + "/devices", ids: []string{"lamp", "fan"}},
		"token":       {details: "url: " + server.URL + "/private", token: "secret"},
		"no token":    {details: "url: " + server.URL + "/private", err: "401"},
		"not a list":  {details: "url: " + server.URL + "/", err: "decode response"},
		"no name":     {details: "url: " + server.URL + "/nameless", err: "device 2 of 2 has no name"},
		"two lists":   {details: "url: " + server.URL + "/two", err: "decode response"},
		"too long":    {details: "url: " + server.URL + "/long", err: "must have at most 1048576 bytes"},
		"truncated":   {details: "url: " + server.URL + "/cut", err: "unexpected EOF"},
		"no url":      {details: "", err: "url: required"},
		"unknown key": {details: "uri: x", err: `unknown key "uri"`},
		"invalid url": {details: `url: "%"`, err: "discoveryDetails: url"},
		"no server":   {details: "url: http://127.0.0.1:1/", err: "refused"},
	} {
		t.Run(name, func(t *testing.T) {
			devices, err := handlerhttp.List(t.Context(), handler.Request{
				Details: test.details, Properties: map[string][]byte{"token": []byte(test.token)},
			})
			if test.err != "" {
				require.ErrorContains(t, err, test.err)
				return
			}
			require.NoError(t, err)
			var ids []string
			for _, device := range devices {
				ids = append(ids, device.GetId())
			}
			require.Equal(t, test.ids, ids)
		})
	}
}

// TestTutorial checks that the code and the manifests in the tutorial are those of the sample.
func TestTutorial(t *testing.T) {
	sources := map[string]string{
		"go":   read(t, "handler.go", "cmd/handler-http/main.go", "cmd/http-broker/main.go"),
		"yaml": read(t, "configuration.yaml", "application.yaml"),
	}
	blocks := regexp.MustCompile("(?s)```(go|yaml)\n(.*?)```").FindAllStringSubmatch(read(t, "../../../docs/tutorials/handler-to-application.md"), -1)
	require.Len(t, blocks, 7)
	for _, block := range blocks {
		for line := range strings.Lines(block[2]) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), " // ")
			require.Contains(t, sources[block[1]], line+"\n")
		}
	}
}

func read(t *testing.T, files ...string) string {
	t.Helper()
	var all strings.Builder
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all.Write(text)
	}
	return all.String()
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`[{"name": "lamp", "url": "http://lamp"}, {"name": "fan"}]`, `[{"NAME": "a", "name": "b"}]`, "[]", "null", `[{}]`, `[{"name": 1}]`, "[[", "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, response []byte) {
		devices, err := handlerhttp.Decode(bytes.NewReader(response))
		if err != nil {
			require.Empty(t, devices, "part of a list")
			return
		}
		for _, device := range devices {
			require.NotEmpty(t, device.Name)
		}
		require.Equal(t, devices, decoded(t, response), "decode is deterministic")
		encoded, err := json.Marshal(devices)
		require.NoError(t, err)
		require.Equal(t, devices, decoded(t, encoded), "decode reverses json.Marshal")
		if list := bytes.TrimSpace(response); bytes.HasPrefix(list, []byte("[")) {
			_, err = handlerhttp.Decode(bytes.NewReader(list[:len(list)-1]))
			require.Error(t, err, "truncated list")
		}
	})
}

func decoded(t *testing.T, response []byte) []handlerhttp.Device {
	t.Helper()
	devices, err := handlerhttp.Decode(bytes.NewReader(response))
	require.NoError(t, err)
	return devices
}
