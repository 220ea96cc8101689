package discovery

import (
	"context"
	"net/netip"
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

	"akri.sh/libs/handler/address"
	"akri.sh/libs/onvif"
	"akri.sh/services/handler-onvif/internal/cameras"
	"akri.sh/services/handler-onvif/internal/wsdiscovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	interval = 10 * time.Second
	hour     = time.Hour

	getTime        = string(onvif.GetSystemDateAndTime)
	getInterfaces  = string(onvif.GetNetworkInterfaces)
	getInformation = string(onvif.GetDeviceInformation)
)

// self is the origin of all datagrams.
var self = address.Origin{Addr: netip.MustParseAddr("127.0.0.1")}

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
	if err := onvif.Decode(message, &sent); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent = append(c.sent, probe{after: time.Since(c.start), deviceType: wsdiscovery.Type(sent.Types), id: sent.ID})
	return 1, nil
}

func (c *fakeConn) Receive(ctx context.Context, handle func([]byte, address.Origin)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-c.failure:
			return err
		case datagram := <-c.datagrams:
			handle([]byte(datagram), self)
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
	options := onvif.Options{Timeout: time.Minute, Concurrency: concurrency, Control: address.Control, Observe: h.observe}
	h.Prober = NewProber(Options{
		Options: cameras.Options{Interval: interval, MaxPerHost: 1000},
		Client:  onvif.NewClient(options), UnverifiedClient: onvif.NewClient(options), Log: zap.NewNop(),
		Metrics: Metrics{
			Cameras:   prometheus.NewGauge(prometheus.GaugeOpts{}),
			Probes:    prometheus.NewCounter(prometheus.CounterOpts{}),
			Datagrams: prometheus.NewCounterVec(prometheus.CounterOpts{}, []string{"result"}),
		},
	})
	h.stopped, _ = background(t, func(ctx context.Context) error { return h.Run(ctx, h.conn) })
	return h
}

func (h *harness) observe(operation onvif.Operation, err error) {
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

// background runs a function until stop is called or the test ends. The test may receive the
// returned error, otherwise it must be nil.
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
