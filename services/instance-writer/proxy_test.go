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

// proxy forwards requests of a replica to the API server.
type proxy struct {
	*httptest.Server
	// reject makes the proxy answer a request with an error if it returns true. It may block.
	reject atomic.Pointer[func(*http.Request) bool]
	// answered is called after the API server has answered a request and before the answer is
	// forwarded.
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
		if reject := p.reject.Load(); reject != nil && (*reject)(r) {
			http.Error(w, "rejected by the proxy", http.StatusInternalServerError)
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

// rejectIf sets which requests are rejected.
func (p *proxy) rejectIf(reject func(*http.Request) bool) { p.reject.Store(&reject) }
