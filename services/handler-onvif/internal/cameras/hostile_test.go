package cameras_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/services/handler-onvif/internal/cameras"
	"akri.sh/services/handler-onvif/internal/wsdiscovery"
)

func TestForgedHelloDoesNotMoveCamera(t *testing.T) {
	n := newNetwork(url1, url2)
	n.Announce(wsdiscovery.Endpoint{UUID: "a", Addresses: []string{url1}, Scopes: []string{"own"}}, false, sender, n.now)
	n.check()
	n.advance(2 * time.Second)
	n.Announce(wsdiscovery.Endpoint{UUID: "a", Addresses: []string{url2}, Scopes: []string{"forged"}}, true, sender, n.now)
	n.check()
	found, _ := n.Cameras()
	require.Equal(t, []cameras.Camera{{UUID: "a", URL: url1, Scopes: []string{"own"}, Sender: sender}}, found)
}

func TestForgedHellosDoNotTransferAddress(t *testing.T) {
	n := newNetwork(url1, url2)
	n.match("a", url1)
	n.check()
	n.advance(2 * time.Second)
	attacker := origin(netip.MustParseAddr("10.0.0.66"))
	n.Announce(wsdiscovery.Endpoint{UUID: "a", Addresses: []string{url2}}, true, attacker, n.now)
	n.Announce(wsdiscovery.Endpoint{UUID: "b", Addresses: []string{url1}}, true, attacker, n.now)
	n.check()
	require.Equal(t, url1, n.urls()["a"])
}

func TestForgedHelloBeforeMatchDoesNotHideCamera(t *testing.T) {
	n := newNetwork(url1)
	n.hello("a", url2)
	n.check()
	require.Zero(t, n.Pending(start))
	n.match("a", url1)
	require.Equal(t, 1, n.Pending(start))
	n.advance(time.Second)
	n.check()
	require.Equal(t, map[string]string{"a": url1}, n.urls())
}

func TestForgedHelloDuringCheckDoesNotHideCamera(t *testing.T) {
	n := newNetwork(url1)
	n.hello("a", url2)
	checks := n.Due(n.now)
	n.match("a", url1)
	n.hello("a", url2)
	n.Complete(checks[0], cameras.Result{}, n.now)
	require.Equal(t, 1, n.Pending(start))
	n.advance(time.Second)
	n.check()
	require.Equal(t, map[string]string{"a": url1}, n.urls())
}

func TestEndpointThatNeverAnswersIsForgotten(t *testing.T) {
	n := newNetwork()
	n.match("a", url1)
	n.Announce(wsdiscovery.Endpoint{UUID: "printer", Addresses: []string{url2}, Foreign: true}, false, sender, n.now)
	checks := 0
	for range 120 {
		checks += len(n.check())
		n.advance(time.Second)
	}
	require.Equal(t, 4, checks, "after 0, 10, 30 and 70 s")
	n.advance(time.Minute)
	require.Empty(t, n.check())
	_, planned := n.Next()
	require.False(t, planned)
}

func TestUnverifiedEndpointsAreLimited(t *testing.T) {
	n := newNetwork()
	announce := func(from netip.Addr, i int) {
		n.Announce(wsdiscovery.Endpoint{UUID: fmt.Sprint(from, i), Addresses: []string{url1}}, true, origin(from), n.now)
	}
	for i := range 1000 {
		announce(sender.Addr, i)
	}
	require.Len(t, n.Due(n.now), 256, "of one sender")
	announce(netip.MustParseAddr("10.0.0.9"), 0)
	require.Len(t, n.Due(n.now), 1, "of another sender")
	for i := range 12_000 {
		announce(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), i)
	}
	require.Equal(t, 10_000, n.Pending(start), "of all senders")
}

func TestMemoryIsLimited(t *testing.T) {
	c := cameras.NewCache(options)
	scopes := []string{strings.Repeat("s", 8<<10)}
	announce := func(uuid string, from byte, scopes []string) {
		announced := wsdiscovery.Endpoint{UUID: uuid, Addresses: []string{url1}, Scopes: scopes}
		c.Announce(announced, true, origin(netip.AddrFrom4([4]byte{10, 2, 0, from})), start)
	}
	announce("small", 0, nil)
	for i := range 5_000 {
		announce(fmt.Sprint(i), byte(i/200), scopes)
	}
	cached := c.Pending(start)
	require.Greater(t, cached, 1_500)
	require.Less(t, cached, 2_100, "16 MiB")
	announce("small", 0, scopes)
	for _, check := range c.Due(start) {
		c.Complete(check, cameras.Result{URL: "http://10.0.0.9/" + check.UUID}, start)
	}
	found, _ := c.Cameras()
	for _, camera := range found {
		if camera.UUID == "small" {
			require.Empty(t, camera.Scopes, "a cached endpoint cannot grow either")
		}
	}
	require.Len(t, found, cached)
}

// Finding 10: a host cannot make the handler call addresses of other networks, or of the node.
func TestForeignAddressesAreNotCalled(t *testing.T) {
	foreign := []string{"http://198.51.100.1/", "http://127.0.0.1/", "http://camera.example/", "http://100.100.100.200/", "http://[::1]/"}
	n := newNetwork()
	n.Policy.Allow = nil
	n.match("a", foreign...)
	require.Equal(t, map[string][]string{"a": {"http://camera.example/"}}, n.check(), "a name is checked when it is resolved")
	n.match("b", append(foreign, url2)...)
	require.Equal(t, []string{"http://camera.example/", url2}, n.check()["b"])
	n.Policy.Allow = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	n.match("c", foreign...)
	require.Equal(t, []string{"http://198.51.100.1/", "http://camera.example/"}, n.check()["c"])
}

// Finding 10: one host is at most MaxPerHost cameras. Those that were announced first stay.
func TestCamerasOfOneHostAreLimited(t *testing.T) {
	n := newNetwork()
	n.MaxPerHost = 3
	announce := func(uuid string, port int) {
		url := fmt.Sprintf("http://10.0.0.1:%d/", port)
		n.answers[url] = true
		n.match(uuid, url)
		n.check()
		n.advance(time.Second)
	}
	n.answers[url2] = true
	n.match("other", url2)
	for i := range 5 {
		announce(fmt.Sprintf("d%d", 9-i), 1000+i)
	}
	found, excessive := n.Cameras()
	var uuids []string
	for _, camera := range found {
		uuids = append(uuids, camera.UUID)
	}
	require.Equal(t, []string{"d7", "d8", "d9", "other"}, uuids)
	require.Equal(t, []string{"10.0.0.1"}, excessive)
}
