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
	require.Equal(t, []cameras.Camera{{UUID: "a", URL: url1, Scopes: []string{"own"}}}, n.Cameras())
}

func TestForgedHellosDoNotTransferAddress(t *testing.T) {
	n := newNetwork(url1, url2)
	n.match("a", url1)
	n.check()
	n.advance(2 * time.Second)
	attacker := netip.MustParseAddr("10.0.0.66")
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
		n.Announce(wsdiscovery.Endpoint{UUID: fmt.Sprint(from, i), Addresses: []string{url1}}, true, from, n.now)
	}
	for i := range 1000 {
		announce(sender, i)
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
	c := cameras.NewCache(interval)
	scopes := []string{strings.Repeat("s", 8<<10)}
	announce := func(uuid string, from byte, scopes []string) {
		announced := wsdiscovery.Endpoint{UUID: uuid, Addresses: []string{url1}, Scopes: scopes}
		c.Announce(announced, true, netip.AddrFrom4([4]byte{10, 2, 0, from}), start)
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
	for _, camera := range c.Cameras() {
		if camera.UUID == "small" {
			require.Empty(t, camera.Scopes, "a cached endpoint cannot grow either")
		}
	}
	require.Len(t, c.Cameras(), cached)
}
