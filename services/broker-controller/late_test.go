package brokercontroller_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// gate holds back what watches of one resource bring.
type gate struct {
	resource string
	mu       sync.Mutex
	closed   chan struct{} // nil: open
}

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.closed)
	g.closed = nil
}

func (g *gate) state() chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

func (g *gate) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(request)
		if err == nil && request.URL.Query().Has("watch") && strings.HasSuffix(request.URL.Path, "/"+g.resource) {
			response.Body = gated{response.Body, g}
		}
		return response, err
	})
}

type gated struct {
	io.ReadCloser
	gate *gate
}

func (g gated) Read(p []byte) (int, error) {
	n, err := g.ReadCloser.Read(p)
	if closed := g.gate.state(); closed != nil {
		<-closed
	}
	return n, err
}

func TestWhatWasWrittenIsNotWrittenAgainWhenTheWatchIsLate(t *testing.T) {
	w := newWorld(t)
	pods := &gate{resource: "pods"}
	w.wrap = pods.wrap
	w.start()
	c := w.configuration("echo", podsOnly)
	w.instance(c, "8120fe", 1, "node-a")
	w.eventuallyNames(w.writes.list, "POST pods", "POST events")
	w.eventuallyNames(w.podNames, "echo-8120fe-pod")

	pods.close()
	w.instance(c, "a19705", 1, "node-a")
	w.eventuallyNames(w.podNames, "echo-8120fe-pod", "echo-a19705-pod")
	w.patchInstance("echo-a19705", `{"spec":{"capacity":2}}`)
	w.instance(c, "d2981e", 1, "node-a") // its broker shows that the patch has been worked on
	w.eventuallyNames(w.podNames, "echo-8120fe-pod", "echo-a19705-pod", "echo-d2981e-pod")
	pods.open()
	require.NoError(t, w.Instances.In(w.namespace).Delete(t.Context(), "echo-a19705", metav1.DeleteOptions{}))
	w.eventuallyNames(w.podNames, "echo-8120fe-pod", "echo-d2981e-pod")
	made := slices.DeleteFunc(w.writes.list(), func(write string) bool { return write != "POST pods" })
	require.Len(t, made, 3)
}
