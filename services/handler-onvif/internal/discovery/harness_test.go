package discovery

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"akri.sh/services/handler-onvif/internal/soap"
	"akri.sh/services/handler-onvif/internal/wsdiscovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	interval = 10 * time.Second
	hour     = time.Hour

	getTime        = string(soap.GetSystemDateAndTime)
	getInterfaces  = string(soap.GetNetworkInterfaces)
	getInformation = string(soap.GetDeviceInformation)
)

// fakeCamera is a device service on loopback. Tests start it outside of their synctest bubble: then a
// request takes no time of the bubble, and the server's goroutines do not block the bubble's clock.
type fakeCamera struct {
	uuid, url, ip, mac, scope string
	server                    *httptest.Server
	held                      chan struct{} // receives when a request is held

	mu      sync.Mutex
	offline bool            // closes connections without a response
	holding map[string]bool // operations that are held until release is closed
	release chan struct{}
	holds   int            // current number of held requests
	maxHeld int            // maximum of holds
	status  map[string]int // HTTP status of operations that fail
	model   string
	ahead   time.Duration // of the initial time of a bubble
	served  []string      // operations, with user and time of the token
}

func newFakeCamera(t *testing.T, uuid string) *fakeCamera {
	t.Helper()
	c := &fakeCamera{
		uuid: uuid, ip: "10.0.0.7", mac: "00:11", scope: "onvif://name/" + uuid, model: "Peephole",
		held: make(chan struct{}, 1000), release: make(chan struct{}), holding: map[string]bool{}, status: map[string]int{},
	}
	c.server = httptest.NewServer(c)
	c.url = c.server.URL + "/onvif/device_service"
	t.Cleanup(c.server.Close)
	return c
}

// set changes the camera under its lock.
func (c *fakeCamera) set(change func(*fakeCamera)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

func (c *fakeCamera) setOffline(offline bool) { c.set(func(c *fakeCamera) { c.offline = offline }) }

// requests returns the requests since the last call.
func (c *fakeCamera) requests() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	served := c.served
	c.served = nil
	return served
}

// heldRequests returns the current number of held requests.
func (c *fakeCamera) heldRequests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.holds
}

type fakeRequest struct {
	Username string `xml:"Header>Security>UsernameToken>Username"`
	Created  string `xml:"Header>Security>UsernameToken>Created"`
	Body     struct {
		Operations []struct{ XMLName xml.Name } `xml:",any"`
	} `xml:"Body"`
}

func (c *fakeCamera) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var request fakeRequest
	if soap.Decode(body, &request) != nil || len(request.Body.Operations) != 1 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	operation := request.Body.Operations[0].XMLName.Local
	served := operation
	if request.Username != "" {
		served += " as " + request.Username + " at " + request.Created
	}
	c.mu.Lock()
	c.served = append(c.served, served)
	offline, holding, status, response := c.offline, c.holding[operation], c.status[operation], c.response(operation)
	c.mu.Unlock()
	if holding {
		c.hold(r.Context())
	}
	switch {
	case offline:
		panic(http.ErrAbortHandler)
	case status != 0:
		w.WriteHeader(status)
	default:
		fmt.Fprintf(w, `<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"><s:Body><%[1]sResponse>%[2]s</%[1]sResponse></s:Body></s:Envelope>`,
			operation, response)
	}
}

func (c *fakeCamera) hold(ctx context.Context) {
	c.set(func(c *fakeCamera) {
		c.holds++
		c.maxHeld = max(c.maxHeld, c.holds)
	})
	defer c.set(func(c *fakeCamera) { c.holds-- })
	c.held <- struct{}{}
	select {
	case <-c.release:
	case <-ctx.Done():
	}
}

func (c *fakeCamera) response(operation string) string {
	switch operation {
	case getTime:
		now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(c.ahead) // the initial time of a bubble
		return now.Format("<SystemDateAndTime><UTCDateTime><Time><Hour>15</Hour><Minute>4</Minute><Second>5</Second></Time>" +
			"<Date><Year>2006</Year><Month>1</Month><Day>2</Day></Date></UTCDateTime></SystemDateAndTime>")
	case getInterfaces:
		return "<NetworkInterfaces><Info><HwAddress>" + c.mac + "</HwAddress></Info><IPv4><Config><Manual><Address>" + c.ip +
			"</Address></Manual></Config></IPv4></NetworkInterfaces>"
	default:
		return "<Manufacturer>Akri</Manufacturer><Model>" + c.model + "</Model>"
	}
}

// fakeConn is a Conn without a network.
type fakeConn struct {
	start        time.Time
	datagrams    chan string
	noInterfaces atomic.Bool
	isPending    atomic.Bool
	failure      chan error // ends Receive

	mu   sync.Mutex
	sent []probe
}

type probe struct {
	after      time.Duration
	deviceType wsdiscovery.Type
	id         string
}

func (c *fakeConn) Send(message []byte) (int, error) {
	if c.noInterfaces.Load() {
		return 0, nil
	}
	var sent struct {
		Types string `xml:"Body>Probe>Types"`
		ID    string `xml:"Header>MessageID"`
	}
	if err := soap.Decode(message, &sent); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, probe{after: time.Since(c.start), deviceType: wsdiscovery.Type(sent.Types), id: sent.ID})
	return 1, nil
}

func (c *fakeConn) Receive(ctx context.Context, handle func([]byte, netip.Addr)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-c.failure:
			return err
		case datagram := <-c.datagrams:
			handle([]byte(datagram), netip.MustParseAddr("127.0.0.1"))
		}
	}
}

func (c *fakeConn) Pending() bool { return c.isPending.Load() }

// probes returns the probes since the last call.
func (c *fakeConn) probes() []probe {
	c.mu.Lock()
	defer c.mu.Unlock()
	sent := c.sent
	c.sent = nil
	return sent
}

// match, hello and bye return messages of a camera. Without addresses, they have the camera's own.
func match(c *fakeCamera, addresses ...string) string {
	return description("ProbeMatches><ProbeMatch", c, addresses) + "</ProbeMatch></ProbeMatches></Body></Envelope>"
}

func hello(c *fakeCamera, addresses ...string) string {
	return description("Hello", c, addresses) + "</Hello></Body></Envelope>"
}

func bye(c *fakeCamera) string { return description("Bye", c, nil) + "</Bye></Body></Envelope>" }

func description(element string, c *fakeCamera, addresses []string) string {
	if len(addresses) == 0 {
		addresses = []string{c.url}
	}
	return "<Envelope><Body><" + element + "><EndpointReference><Address>urn:uuid:" + c.uuid + "</Address></EndpointReference><Scopes>" +
		c.scope + "</Scopes><XAddrs>" + strings.Join(addresses, " ") + "</XAddrs>"
}

// harness is a running Prober.
type harness struct {
	*Prober

	conn    *fakeConn
	stopped <-chan error

	mu       sync.Mutex
	requests map[string]int // completed calls: "operation", or "operation: error"
}

// newHarness runs a Prober until the test ends.
func newHarness(t *testing.T, interval time.Duration, concurrency int) *harness {
	t.Helper()
	h := &harness{
		conn:     &fakeConn{start: time.Now(), datagrams: make(chan string), failure: make(chan error)},
		requests: map[string]int{},
	}
	options := soap.Options{Timeout: time.Minute, Concurrency: concurrency, Observe: h.observe}
	h.Prober = NewProber(Options{
		Interval: interval, Client: soap.NewClient(options), UnverifiedClient: soap.NewClient(options), Log: zap.NewNop(),
		Metrics: Metrics{
			Cameras:   prometheus.NewGauge(prometheus.GaugeOpts{}),
			Probes:    prometheus.NewCounter(prometheus.CounterOpts{}),
			Datagrams: prometheus.NewCounterVec(prometheus.CounterOpts{}, []string{"result"}),
		},
	})
	h.stopped, _ = background(t, func(ctx context.Context) error { return h.Run(ctx, h.conn) })
	return h
}

func (h *harness) observe(operation soap.Operation, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err != nil {
		h.requests["error"]++
		return
	}
	h.requests[string(operation)]++
}

// observed returns the number of completed calls of an operation, or of failed calls for "error".
func (h *harness) observed(operation string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.requests[operation]
}

// background runs a function until stop is called or the test ends. The test may receive the returned
// error, otherwise it must be nil.
func background(t *testing.T, run func(context.Context) error) (stopped <-chan error, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		result <- run(ctx)
		close(result)
	}()
	t.Cleanup(func() {
		cancel()
		for err := range result {
			require.NoError(t, err)
		}
	})
	return result, cancel
}

// bubble runs a test with a Prober in a synctest bubble.
func bubble(t *testing.T, test func(t *testing.T, h *harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newHarness(t, interval, 4)) })
}

func (h *harness) receive(datagrams ...string) {
	for _, datagram := range datagrams {
		h.conn.datagrams <- datagram
	}
}

// advance advances the bubble's clock and waits until all goroutines are idle.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

type subscription struct {
	changed     <-chan struct{}
	unsubscribe func()
}

func (h *harness) subscribe(t *testing.T) subscription {
	t.Helper()
	changed, unsubscribe := h.Prober.subscribe()
	t.Cleanup(unsubscribe)
	return subscription{changed, unsubscribe}
}

// notified reports whether there was a change since the last call.
func (s subscription) notified() bool {
	select {
	case <-s.changed:
		return true
	default:
		return false
	}
}

// urls returns the URLs of the cameras by UUID.
func (h *harness) urls() map[string]string {
	list, _ := h.cameras(0)
	urls := map[string]string{}
	for _, camera := range list {
		urls[camera.UUID] = camera.URL
	}
	return urls
}

func (h *harness) complete(timeout time.Duration) bool {
	_, complete := h.cameras(timeout)
	return complete
}

// isBurstComplete reports whether the first probes were sent.
func (h *harness) isBurstComplete() bool {
	h.Prober.mu.Lock()
	defer h.Prober.mu.Unlock()
	return !h.burstEnd.IsZero()
}

func count(requests []string, operation string) int {
	return len(slices.DeleteFunc(slices.Clone(requests), func(request string) bool { return !strings.HasPrefix(request, operation) }))
}
