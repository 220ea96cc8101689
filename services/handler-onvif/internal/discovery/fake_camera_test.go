package discovery

import (
	"context"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"akri.sh/libs/onvif"
)

// fakeCamera is a device service on loopback. Tests start it outside of their synctest bubble:
// then a request takes no time of the bubble, and the server's goroutines do not block the
// bubble's clock.
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
	if onvif.Decode(body, &request) != nil || len(request.Body.Operations) != 1 {
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

func bye(c *fakeCamera) string { return description("Bye", c, nil) + "</Bye></Body></Envelope>" }

func count(requests []string, operation string) int {
	return len(slices.DeleteFunc(slices.Clone(requests), func(request string) bool { return !strings.HasPrefix(request, operation) }))
}
