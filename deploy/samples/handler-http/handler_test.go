package handlerhttp_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
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
			_, _ = w.Write([]byte(`[{"name": "` + strings.Repeat("x", handlerhttp.MaxAnswer) + `"}]`))
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
		"devices":       {details: "url: " + server.URL + "/devices", ids: []string{"lamp", "fan"}},
		"with a token":  {details: "url: " + server.URL + "/private", token: "secret"},
		"without it":    {details: "url: " + server.URL + "/private", err: "401"},
		"not a list":    {details: "url: " + server.URL + "/", err: "decode the answer"},
		"no name":       {details: "url: " + server.URL + "/nameless", err: "device 2 of 2 has no name"},
		"two lists":     {details: "url: " + server.URL + "/two", err: "decode the answer"},
		"too long":      {details: "url: " + server.URL + "/long", err: "more than 1048576 bytes"},
		"cut off":       {details: "url: " + server.URL + "/cut", err: "unexpected EOF"},
		"no url":        {details: "", err: "url: required"},
		"a wrong key":   {details: "uri: x", err: `unknown key "uri"`},
		"a bad url":     {details: `url: "%"`, err: "discoveryDetails: url"},
		"nobody serves": {details: "url: http://127.0.0.1:1/", err: "refused"},
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

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`[{"name": "lamp", "url": "http://lamp"}, {"name": "fan"}]`, `[{"NAME": "a", "name": "b"}]`, "[]", "null", `[{}]`, `[{"name": 1}]`, "[[", "\xff",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		devices, err := handlerhttp.Decode(bytes.NewReader(answer))
		if err != nil {
			require.Empty(t, devices, "half a list takes devices away")
			return
		}
		for _, device := range devices {
			require.NotEmpty(t, device.Name)
		}
		require.Equal(t, devices, decoded(t, answer), "the same answer, the same devices")
		written, err := json.Marshal(devices)
		require.NoError(t, err)
		require.Equal(t, devices, decoded(t, written), "what was understood can be said again")
		if list := bytes.TrimSpace(answer); bytes.HasPrefix(list, []byte("[")) {
			_, err = handlerhttp.Decode(bytes.NewReader(list[:len(list)-1]))
			require.Error(t, err, "a list that is cut off")
		}
	})
}

func decoded(t *testing.T, answer []byte) []handlerhttp.Device {
	t.Helper()
	devices, err := handlerhttp.Decode(bytes.NewReader(answer))
	require.NoError(t, err)
	return devices
}
