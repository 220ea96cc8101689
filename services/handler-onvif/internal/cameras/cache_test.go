package cameras_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/handler/address"
	"akri.sh/services/handler-onvif/internal/cameras"
	"akri.sh/services/handler-onvif/internal/wsdiscovery"
)

const (
	interval = 10 * time.Second
	url1     = "http://10.0.0.1/onvif/device_service"
	url2     = "http://10.0.0.2/onvif/device_service"
)

var (
	start  = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	sender = origin(netip.MustParseAddr("10.0.0.1"))
)

// origin returns a host on the network of all cameras of the tests.
func origin(addr netip.Addr) address.Origin {
	return address.Origin{Addr: addr, Networks: []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fe80::/64"),
		netip.MustParsePrefix("169.254.0.0/16"), netip.MustParsePrefix("fd00::/64"),
	}}
}

// options have no limit of cameras.
var options = cameras.Options{Interval: interval, MaxPerHost: 10_000}

// network is a Cache and the URLs that answer checks.
type network struct {
	*cameras.Cache

	now     time.Time
	answers map[string]bool
}

func newNetwork(urls ...string) *network {
	n := &network{Cache: cameras.NewCache(options), now: start, answers: map[string]bool{}}
	for _, url := range urls {
		n.answers[url] = true
	}
	return n
}

func (n *network) match(uuid string, addresses ...string) {
	n.Announce(wsdiscovery.Endpoint{UUID: uuid, Addresses: addresses}, false, sender, n.now)
}

func (n *network) hello(uuid string, addresses ...string) {
	n.Announce(wsdiscovery.Endpoint{UUID: uuid, Addresses: addresses}, true, sender, n.now)
}

// check completes the checks that are due and returns their URLs by UUID.
func (n *network) check() map[string][]string {
	checked := map[string][]string{}
	for _, check := range n.Due(n.now) {
		checked[check.UUID] = check.URLs
		n.Complete(check, n.result(check), n.now)
	}
	return checked
}

func (n *network) result(check cameras.Check) cameras.Result {
	for _, url := range check.URLs {
		if n.answers[url] {
			return cameras.Result{URL: url}
		}
	}
	return cameras.Result{}
}

func (n *network) advance(d time.Duration) { n.now = n.now.Add(d) }

// urls returns the URLs of the cameras by UUID.
func (n *network) urls() map[string]string {
	urls := map[string]string{}
	found, _ := n.Cameras()
	for _, camera := range found {
		urls[camera.UUID] = camera.URL
	}
	return urls
}

func TestCameraIsCheckedOncePerInterval(t *testing.T) {
	n := newNetwork(url1)
	n.match("a", url1)
	require.Equal(t, 1, n.Pending(start))
	require.Equal(t, map[string][]string{"a": {url1}}, n.check())
	require.Zero(t, n.Pending(start))
	require.Equal(t, map[string]string{"a": url1}, n.urls())
	require.Empty(t, n.check())
	next, planned := n.Next()
	require.True(t, planned)
	require.Equal(t, start.Add(interval), next)
	n.advance(interval)
	require.Len(t, n.check(), 1)
}

func TestEmptyCache(t *testing.T) {
	n := newNetwork()
	_, planned := n.Next()
	require.False(t, planned)
	require.Empty(t, n.check())
	require.Empty(t, n.urls())
}

func TestTwoFailuresRemoveCamera(t *testing.T) {
	n := newNetwork(url1)
	n.match("a", url1)
	n.check()
	n.answers[url1] = false
	n.advance(interval)
	n.check()
	require.Len(t, n.urls(), 1, "after one failure")
	n.advance(interval / 2)
	n.check()
	require.Empty(t, n.urls())
	n.answers[url1] = true
	n.advance(interval)
	n.check()
	require.Len(t, n.urls(), 1, "after a success")
}

func TestByeRemovesCameraAfterOneFailure(t *testing.T) {
	n := newNetwork(url1)
	n.match("a", url1)
	n.check()
	n.advance(2 * time.Second)
	n.Bye("a", n.now)
	n.Bye("unknown", n.now)
	require.Len(t, n.check(), 1)
	require.Len(t, n.urls(), 1, "a Bye of a camera that answers")
	n.answers[url1] = false
	n.advance(2 * time.Second)
	n.Bye("a", n.now)
	n.check()
	require.Empty(t, n.urls())
}

func TestHelloChecksAtMostOncePerSecond(t *testing.T) {
	n := newNetwork()
	n.match("a", url1)
	n.check()
	n.answers[url1] = true
	n.advance(100 * time.Millisecond)
	n.hello("a", url1)
	require.Empty(t, n.check())
	n.advance(time.Second)
	require.Len(t, n.check(), 1)
	require.Len(t, n.urls(), 1)
	n.hello("b", url1)
	require.Len(t, n.check(), 1, "a new endpoint is checked immediately")
}

func TestMovedCamera(t *testing.T) {
	n := newNetwork(url1)
	n.match("a", url1)
	n.check()
	n.answers = map[string]bool{url2: true}
	n.advance(2 * time.Second)
	n.hello("a", url2)
	require.Equal(t, map[string][]string{"a": {url1, url2}}, n.check(), "the previous URL is checked first")
	require.Equal(t, map[string]string{"a": url2}, n.urls())
}

func TestAddressBelongsToOneCamera(t *testing.T) {
	n := newNetwork(url1, url2)
	n.match("a", url1, url2)
	n.advance(time.Second)
	n.match("b", url1)
	n.check()
	require.Equal(t, map[string]string{"a": url1}, n.urls(), "the first endpoint")
	for range 7 { // the camera has a new UUID and announces only that
		n.advance(interval)
		n.match("b", url1)
		n.check()
	}
	require.Equal(t, map[string]string{"b": url1}, n.urls())
}

func TestAddressesAreFilteredAndSorted(t *testing.T) {
	for name, test := range map[string]struct {
		from      string
		addresses []string
		want      []string
	}{
		"http, routable, IPv4 first": {
			addresses: []string{"https://10.0.0.1/", "http://[fe80::1]/", "http://169.254.0.1/", "http://[fd00::1]/", "http://10.0.0.1/"},
			want:      []string{"http://10.0.0.1/", "http://[fd00::1]/", "http://169.254.0.1/", "http://[fe80::1]/"},
		},
		"host name":                 {addresses: []string{"http://camera.local/"}, want: []string{"http://camera.local/"}},
		"unspecified and multicast": {addresses: []string{"http://0.0.0.0/", "http://[::]/", "http://239.255.255.250/", "http://[ff02::c]/", url1}, want: []string{url1}},
		"loopback of another host":  {addresses: []string{"http://127.0.0.1/", "http://localhost/", "http://[::1]/", "http://[::ffff:127.0.0.1]/", url1}, want: []string{url1}},
		"loopback of this host":     {from: "127.0.0.1", addresses: []string{"http://127.0.0.1/"}, want: []string{"http://127.0.0.1/"}},
		"duplicates":                {addresses: []string{url1, url1}, want: []string{url1}},
		"no usable address":         {addresses: []string{"http://0.0.0.0/"}},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork()
			from := sender
			if test.from != "" {
				from = origin(netip.MustParseAddr(test.from))
			}
			n.Announce(wsdiscovery.Endpoint{UUID: "a", Addresses: test.addresses}, false, from, n.now)
			require.Equal(t, test.want, n.check()["a"])
		})
	}
}

func TestCheckHasZoneOfSender(t *testing.T) {
	n, from := newNetwork("http://[fe80::1]/"), origin(netip.MustParseAddr("fe80::1%eth0"))
	n.Announce(wsdiscovery.Endpoint{UUID: "a", Addresses: []string{"http://[fe80::1]/"}}, false, from, n.now)
	checks := n.Due(n.now)
	require.Equal(t, "eth0", checks[0].Sender.Addr.Zone())
	n.Complete(checks[0], cameras.Result{URL: "http://[fe80::1]/", ClockOffset: time.Hour}, n.now)
	found, _ := n.Cameras()
	require.Equal(t, []cameras.Camera{{UUID: "a", URL: "http://[fe80::1]/", Sender: from, ClockOffset: time.Hour}}, found)
}
