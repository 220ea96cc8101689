package onvif

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

	askTime        = "GetSystemDateAndTime"
	askInterfaces  = "GetNetworkInterfaces"
	askInformation = "GetDeviceInformation"
)

// camera is a device service on loopback. It is plugged in outside of the bubble of a test: there it takes no time to ask it, and its
// server, which waits for connections for ever, does not keep the time of the bubble from passing.
type camera struct {
	uuid, url, ip, mac, scope string
	server                    *httptest.Server
	held                      chan struct{} // hears of each question that is held

	mu      sync.Mutex
	silent  bool            // it hangs up
	holding map[string]bool // operations that are answered when `release` is closed
	release chan struct{}
	crowd   int            // questions that are held
	most    int            // and how many there were at once
	fails   map[string]int // operations that it answers with this status
	model   string
	ahead   time.Duration // of the time that a bubble begins at
	asked   []string      // operations, and as whom
}

func plug(t *testing.T, uuid string) *camera {
	t.Helper()
	c := &camera{
		uuid: uuid, ip: "10.0.0.7", mac: "00:11", scope: "onvif://name/" + uuid, model: "Peephole",
		held: make(chan struct{}, 1000), release: make(chan struct{}), holding: map[string]bool{}, fails: map[string]int{},
	}
	c.server = httptest.NewServer(c)
	c.url = c.server.URL + "/onvif/device_service"
	t.Cleanup(c.server.Close)
	return c
}

// set changes the camera while it may be asked.
func (c *camera) set(change func(*camera)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

func (c *camera) hangUp(silent bool) { c.set(func(c *camera) { c.silent = silent }) }

// questions are those since the last call.
func (c *camera) questions() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := c.asked
	c.asked = nil
	return asked
}

// waiting is how many questions are held.
func (c *camera) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.crowd
}

type request struct {
	Username string `xml:"Header>Security>UsernameToken>Username"`
	Created  string `xml:"Header>Security>UsernameToken>Created"`
	Content  struct {
		Operations []struct{ XMLName xml.Name } `xml:",any"`
	} `xml:"Body"`
}

func (c *camera) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	text, _ := io.ReadAll(r.Body)
	var received request
	if soap.Decode(text, &received) != nil || len(received.Content.Operations) != 1 {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	operation := received.Content.Operations[0].XMLName.Local
	c.mu.Lock()
	question := operation
	if received.Username != "" {
		question += " as " + received.Username + " at " + received.Created
	}
	c.asked = append(c.asked, question)
	silent, holding, fails, answer := c.silent, c.holding[operation], c.fails[operation], c.answer(operation)
	c.mu.Unlock()
	if holding {
		c.hold(r.Context())
	}
	switch {
	case silent:
		panic(http.ErrAbortHandler)
	case fails != 0:
		w.WriteHeader(fails)
	default:
		fmt.Fprintf(w, `<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope"><s:Body><%[1]sResponse>%[2]s</%[1]sResponse></s:Body></s:Envelope>`,
			operation, answer)
	}
}

func (c *camera) hold(ctx context.Context) {
	c.set(func(c *camera) {
		c.crowd++
		c.most = max(c.most, c.crowd)
	})
	defer c.set(func(c *camera) { c.crowd-- })
	c.held <- struct{}{}
	select {
	case <-c.release:
	case <-ctx.Done():
	}
}

func (c *camera) answer(operation string) string {
	switch operation {
	case askTime:
		now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(c.ahead) // when the time of a bubble begins
		return now.Format("<SystemDateAndTime><UTCDateTime><Time><Hour>15</Hour><Minute>4</Minute><Second>5</Second></Time>" +
			"<Date><Year>2006</Year><Month>1</Month><Day>2</Day></Date></UTCDateTime></SystemDateAndTime>")
	case askInterfaces:
		return "<NetworkInterfaces><Info><HwAddress>" + c.mac + "</HwAddress></Info><IPv4><Config><Manual><Address>" + c.ip +
			"</Address></Manual></Config></IPv4></NetworkInterfaces>"
	default:
		return "<Manufacturer>Akri</Manufacturer><Model>" + c.model + "</Model>"
	}
}

// air is the network in place of multicast.
type air struct {
	start time.Time
	said  chan string
	quiet atomic.Bool // no interface to send on
	busy  atomic.Bool // something waits to be heard
	cut   chan error  // ends receiving

	mu   sync.Mutex
	sent []probe
}

type probe struct {
	after time.Duration
	kind  wsdiscovery.Type
	id    string
}

func (a *air) Send(message []byte) (int, error) {
	if a.quiet.Load() {
		return 0, nil
	}
	var sent struct {
		Types string `xml:"Body>Probe>Types"`
		ID    string `xml:"Header>MessageID"`
	}
	if err := soap.Decode(message, &sent); err != nil {
		return 0, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sent = append(a.sent, probe{
		after: time.Since(a.start), kind: wsdiscovery.Type(sent.Types), id: sent.ID,
	})
	return 1, nil
}

func (a *air) Receive(ctx context.Context, hear func([]byte, netip.Addr)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-a.cut:
			return err
		case datagram := <-a.said:
			hear([]byte(datagram), netip.MustParseAddr("127.0.0.1"))
		}
	}
}

func (a *air) Pending() bool { return a.busy.Load() }

// probes are those since the last call.
func (a *air) probes() []probe {
	a.mu.Lock()
	defer a.mu.Unlock()
	sent := a.sent
	a.sent = nil
	return sent
}

// match, hello and bye are what a camera says; without addresses it is at its own.
func match(c *camera, addresses ...string) string {
	return said("ProbeMatches><ProbeMatch", c, addresses) + "</ProbeMatch></ProbeMatches></Body></Envelope>"
}

func hello(c *camera, addresses ...string) string {
	return said("Hello", c, addresses) + "</Hello></Body></Envelope>"
}

func bye(c *camera) string { return said("Bye", c, nil) + "</Bye></Body></Envelope>" }

func said(how string, c *camera, addresses []string) string {
	if len(addresses) == 0 {
		addresses = []string{c.url}
	}
	return "<Envelope><Body><" + how + "><EndpointReference><Address>urn:uuid:" + c.uuid + "</Address></EndpointReference><Scopes>" + c.scope +
		"</Scopes><XAddrs>" + strings.Join(addresses, " ") + "</XAddrs>"
}

// world is a census that runs.
type world struct {
	*census
	*air

	ended <-chan error
}

// newWorld starts a census that asks at most so many questions at once. It ends with the test.
func newWorld(t *testing.T, interval time.Duration, concurrency int) *world {
	t.Helper()
	metrics := newMetrics(prometheus.NewRegistry())
	options := soap.Options{Timeout: time.Minute, Concurrency: concurrency, Observe: metrics.answered}
	w := &world{
		census: newCensus(interval, soap.NewClient(options), soap.NewClient(options), metrics, zap.NewNop()),
		air:    &air{start: time.Now(), said: make(chan string), cut: make(chan error)},
	}
	w.ended, _ = background(t, func(ctx context.Context) error { return w.run(ctx, w.air) })
	return w
}

// background runs until it is stopped, at the latest when the test ends. What it ends with is for the test to look at, or nil.
func background(t *testing.T, run func(context.Context) error) (ended <-chan error, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	end := make(chan error, 1)
	go func() {
		end <- run(ctx)
		close(end)
	}()
	t.Cleanup(func() {
		cancel()
		for err := range end {
			require.NoError(t, err)
		}
	})
	return end, cancel
}

// bubble runs a test whose time passes when nothing else is to be done.
func bubble(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newWorld(t, interval, 4)) })
}

func (w *world) say(datagrams ...string) {
	for _, datagram := range datagrams {
		w.said <- datagram
	}
}

// pass lets time pass and then all that is to be done in that moment be done.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// followed is a follower's view.
type followed struct {
	world   *world
	changed <-chan struct{}
	stop    func()
}

func (w *world) followed(t *testing.T) followed {
	t.Helper()
	changed, stop := w.follow()
	t.Cleanup(stop)
	return followed{w, changed, stop}
}

// told tells whether something changed since the last call.
func (f followed) told() bool {
	select {
	case <-f.changed:
		return true
	default:
		return false
	}
}

// urls are where the cameras are, by UUID.
func (w *world) urls() map[string]string {
	cameras, _ := w.cameras(0)
	urls := map[string]string{}
	for _, camera := range cameras {
		urls[camera.UUID] = camera.URL
	}
	return urls
}

func (w *world) complete(timeout time.Duration) bool {
	_, complete := w.cameras(timeout)
	return complete
}

// isProbed tells whether the first probes are sent.
func (w *world) isProbed() bool {
	w.census.mu.Lock()
	defer w.census.mu.Unlock()
	return !w.probed.IsZero()
}

func count(questions []string, operation string) int {
	return len(slices.DeleteFunc(slices.Clone(questions), func(question string) bool { return !strings.HasPrefix(question, operation) }))
}
