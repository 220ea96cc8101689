package brokercontroller_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// gate delays the watch events of one resource while it is closed.
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

func TestLateWatchCausesNoRepeatedWrites(t *testing.T) {
	e := newTestEnv(t)
	pods := &gate{resource: "pods"}
	e.wrap = pods.wrap
	e.start()
	c := e.configuration("echo", podsOnly)
	e.instance(c, "8120fe", 1, "node-a")
	e.eventuallyNames(e.writes.list, "POST pods", "POST events")
	e.eventuallyNames(e.podNames, "echo-8120fe-pod")

	pods.close()
	e.instance(c, "a19705", 1, "node-a")
	e.eventuallyNames(e.podNames, "echo-8120fe-pod", "echo-a19705-pod")
	e.patchInstance("echo-a19705", `{"spec":{"capacity":2}}`)
	e.instance(c, "d2981e", 1, "node-a") // its broker shows that the patch has been reconciled
	e.eventuallyNames(e.podNames, "echo-8120fe-pod", "echo-a19705-pod", "echo-d2981e-pod")
	pods.open()
	require.NoError(t, e.Instances.In(e.namespace).Delete(t.Context(), "echo-a19705", metav1.DeleteOptions{}))
	e.eventuallyNames(e.podNames, "echo-8120fe-pod", "echo-d2981e-pod")
	creations := slices.DeleteFunc(e.writes.list(), func(write string) bool { return write != "POST pods" })
	require.Len(t, creations, 3)
}

// outage closes all watches and fails all reads until it ends. Then the resourceVersions of the
// watches have expired.
type outage struct {
	mu      sync.Mutex
	on      bool
	watches []io.Closer
	expired map[string]bool // paths whose watch got the error
}

func (o *outage) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.on, o.expired = true, map[string]bool{}
	for _, watch := range o.watches {
		watch.Close()
	}
}

func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.on = false
}

func (o *outage) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if request.Method != http.MethodGet {
			return next.RoundTrip(request)
		}
		resumes := request.URL.Query().Has("watch") && !request.URL.Query().Has("sendInitialEvents")
		if response, err := o.respond(request, resumes); response != nil || err != nil {
			return response, err
		}
		response, err := next.RoundTrip(request)
		if err == nil && request.URL.Query().Has("watch") {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.watches = append(o.watches, response.Body)
		}
		return response, err
	})
}

// respond returns nil if the API server should respond.
func (o *outage) respond(request *http.Request, resumes bool) (*http.Response, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.on:
		return nil, io.ErrUnexpectedEOF
	case resumes && o.expired != nil && !o.expired[request.URL.Path]:
		o.expired[request.URL.Path] = true
		text := `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}`
		return &http.Response{
			StatusCode: http.StatusGone, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(strings.NewReader(text)), Request: request,
		}, nil
	}
	return nil, nil //nolint:nilnil // no response of its own
}

func TestMissedChangesAreReconciledAfterAList(t *testing.T) {
	e, api := newTestEnv(t), &outage{}
	e.wrap = api.wrap
	e.start()
	c := e.configuration("echo", withServices)
	e.instance(c, "8120fe", 1, "node-a")
	e.instance(c, "a19705", 1, "node-a")
	kept := e.instance(c, "d2981e", 1, "node-a")
	e.eventuallyNames(e.podNames, "echo-8120fe-pod", "echo-a19705-pod", "echo-d2981e-pod")
	e.setPhase(corev1.PodRunning, e.podNames()...)
	e.eventuallyNames(e.serviceNames, "echo-8120fe-svc", "echo-a19705-svc", "echo-d2981e-svc", "echo-svc")
	before := e.pod("echo-d2981e-pod")

	api.begin()
	require.NoError(t, e.Instances.In(e.namespace).Delete(t.Context(), "echo-8120fe", metav1.DeleteOptions{}))
	require.NoError(t, e.Pods.In(e.namespace).Delete(t.Context(), "echo-a19705-pod", metav1.DeleteOptions{}))
	e.instance(c, "ab76e6", 1, "node-a")
	api.end()
	e.eventuallyNames(e.podNames, "echo-a19705-pod", "echo-ab76e6-pod", "echo-d2981e-pod")
	e.eventuallyNames(e.serviceNames, "echo-a19705-svc", "echo-d2981e-svc", "echo-svc")
	require.Equal(t, before, e.pod("echo-d2981e-pod"))
	require.True(t, metav1.IsControlledBy(before, kept))
}
