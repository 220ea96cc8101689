package admin

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/stretchr/testify/require"
)

// serving returns the address of a server that ends with the test.
func serving(t *testing.T, handler http.Handler) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- newServer(handler).serve(ctx, listener) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return listener.Addr().String()
}

type answer struct {
	*http.Response
	body   string
	reused bool
}

func ask(t *testing.T, method, url string, body io.Reader) answer {
	t.Helper()
	var got answer
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) { got.reused = info.Reused },
	})
	request, err := http.NewRequestWithContext(ctx, method, url, body)
	require.NoError(t, err)
	got.Response, err = http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer func() { require.NoError(t, got.Body.Close()) }()
	text, err := io.ReadAll(got.Body)
	require.NoError(t, err)
	got.body = string(text)
	return got
}

func TestAConnectionIsForManyQuestions(t *testing.T) {
	health, metrics := &Health{}, prometheus.NewRegistry()
	metrics.MustRegister(collectors.NewGoCollector())
	url := "http://" + serving(t, Handler(health, metrics))

	page := ask(t, http.MethodGet, url+"/metrics", nil)
	require.Equal(t, http.StatusOK, page.StatusCode)
	require.Contains(t, page.body, "go_goroutines ")
	require.NotEmpty(t, page.Header.Get("Date"))

	head := ask(t, http.MethodHead, url+"/healthz", nil)
	require.True(t, head.reused)
	require.Empty(t, head.body)
	require.EqualValues(t, len("ok\n"), head.ContentLength)

	health.AddReadiness("api", func(context.Context) error { return errors.New("not synced") })
	ready := ask(t, http.MethodGet, url+"/readyz", nil)
	require.True(t, ready.reused)
	require.Equal(t, http.StatusServiceUnavailable, ready.StatusCode)
	require.Equal(t, "api: not synced\n", ready.body)

	health.AddLiveness("bug", func(context.Context) error { panic("no such thing") })
	live := ask(t, http.MethodGet, url+"/healthz", nil)
	require.Equal(t, http.StatusInternalServerError, live.StatusCode)
	require.Equal(t, "panic: no such thing\n", live.body)

	require.Equal(t, http.StatusNotFound, ask(t, http.MethodGet, url+"/other", nil).StatusCode)
	posted := ask(t, http.MethodPost, url+"/readyz", strings.NewReader("a body"))
	require.Equal(t, http.StatusMethodNotAllowed, posted.StatusCode)
	require.True(t, ask(t, http.MethodGet, url+"/readyz", nil).reused)
}

// say sends text on a connection of its own, and returns all that comes back until the server closes it.
func say(t *testing.T, address, text string) string {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	go func() { _, _ = io.WriteString(conn, text) }()
	got, err := io.ReadAll(conn)
	if err != nil {
		// What the server did not read makes its end of the connection a reset, which may overtake the answer.
		require.ErrorContains(t, err, "reset")
	}
	return string(got)
}

func TestOddQuestions(t *testing.T) {
	address := serving(t, Handler(&Health{}, prometheus.NewRegistry()))
	require.Contains(t, say(t, address, "GET /healthz HTTP/1.0\r\n\r\n"), "200 OK")
	require.Contains(t, say(t, address, "GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"), "200 OK")
	require.Contains(t, say(t, address, "open the door\r\n\r\n"), "400 Bad Request")
	pipelined := say(t, address, "GET /healthz HTTP/1.1\r\n\r\nGET /readyz HTTP/1.1\r\nConnection: close\r\n\r\n")
	require.Equal(t, 2, strings.Count(pipelined, "200 OK"))
	require.NotContains(t, say(t, address, "GET /healthz HTTP/1.1\r\nA: "+strings.Repeat("a", 2*requestBytes)+"\r\n\r\n"), "200 OK")
	require.Equal(t, 1, strings.Count(say(t, address, "GET /healthz HTTP/1.1\r\nContent-Length: 999999\r\n\r\n"+strings.Repeat("GET /healthz HTTP/1.1\r\n\r\n", requestBytes/10)), "200 OK"),
		"what is left of a body is not the next question")
	require.Contains(t, say(t, address, "GET /healthz HTTP/1.0\r\n\r\n"), "200 OK", "it is still there")
}

func TestThoseWhoWaitAreSentAway(t *testing.T) {
	const question = "GET / HTTP/1.1\r\n\r\n"
	for name, test := range map[string]struct {
		said    string
		waiting int
		allowed time.Duration
	}{
		"with nothing to ask":        {"", 0, requestTimeout},
		"in the midst of a question": {"GET / HTTP/1.1\r\nHost:", 0, requestTimeout},
		"in the midst of another":    {question + "GET", 0, requestTimeout},
		"with an answer":             {question, 0, idleTimeout},
		"with an answer, as many do": {question, maxIdle, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				here, there := net.Pipe()
				server := newServer(http.NotFoundHandler())
				for range test.waiting {
					server.idle <- struct{}{}
				}
				go server.converse(t.Context(), there)
				go func() { _, _ = io.WriteString(here, test.said) }()
				began := time.Now()
				_, _ = io.Copy(io.Discard, here)
				require.Equal(t, test.allowed, time.Since(began))
			})
		})
	}
}

func TestTheEndWaitsForNobody(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- newServer(Handler(&Health{}, prometheus.NewRegistry())).serve(ctx, listener) }()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", listener.Addr().String())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	_, err = io.WriteString(conn, "GET /healthz HTTP/1.1\r\n\r\n")
	require.NoError(t, err)
	_, err = http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	cancel()
	require.NoError(t, <-ended)
}

// brokenListener has one error, then a connection.
type brokenListener struct {
	net.Listener
	broken bool
}

func (l *brokenListener) Accept() (net.Conn, error) {
	if !l.broken {
		l.broken = true
		return nil, errors.New("too many open files")
	}
	return l.Listener.Accept()
}

func TestAConnectionThatCannotBeTakenIsNotTheEnd(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- newServer(Handler(&Health{}, prometheus.NewRegistry())).serve(ctx, &brokenListener{Listener: listener})
	}()
	require.Contains(t, say(t, listener.Addr().String(), "GET /healthz HTTP/1.0\r\n\r\n"), "200 OK")
	cancel()
	require.NoError(t, <-ended)
}
