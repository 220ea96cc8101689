package kubetest

import (
	"testing"

	"go.uber.org/goleak"
)

// NoLeaks fails the test if it leaves goroutines that did not run before. It checks that after the
// cleanups that the test registers later. Idle connections to API servers do not count: client-go
// keeps them for the next client of the same server.
func NoLeaks(t *testing.T) {
	t.Helper()
	options := []goleak.Option{
		goleak.IgnoreCurrent(),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("net/http.(*http2ClientConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http/internal/http2.(*ClientConn).readLoop"),
		goleak.IgnoreAnyFunction("golang.org/x/net/http2.(*ClientConn).readLoop"),
	}
	t.Cleanup(func() { goleak.VerifyNone(t, options...) })
}
