package handlerhttp_test

import (
	"net/http"
	"net/http/httptest"
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
