package instancewriter_test

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy stands between one replica and the API server.
type proxy struct {
	*httptest.Server
	// refuse, when it returns true, answers a request in the place of the API server; it may take
	// its time.
	refuse atomic.Pointer[func(*http.Request) bool]
	// answered is called when the API server has answered a request, before the answer goes on.
	answered atomic.Pointer[func(*http.Request)]
}

func newProxy(t testing.TB) *proxy {
	t.Helper()
	target, err := url.Parse(api.Config().Host)
	require.NoError(t, err)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	forward := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1,
	}
	p := &proxy{}
	forward.ModifyResponse = func(r *http.Response) error {
		if answered := p.answered.Load(); answered != nil {
			(*answered)(r.Request)
		}
		return nil
	}
	p.Server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refuse := p.refuse.Load(); refuse != nil && (*refuse)(r) {
			http.Error(w, "cut off", http.StatusInternalServerError)
			return
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		p.CloseClientConnections()
		p.Close()
		transport.CloseIdleConnections()
	})
	return p
}

// when sets what is refused.
func (p *proxy) when(refuse func(*http.Request) bool) { p.refuse.Store(&refuse) }
