package onvif_test

import (
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/integration/devices/netns"
	"akri.sh/integration/devices/onvif"
)

// Cameras and handler are at the two ends of a link, because link-local addresses need one.
func TestIPv6Cameras(t *testing.T) {
	far := newLink(t)
	at := func(address string) netip.AddrPort { return netip.MustParseAddrPort(address) }
	linkLocal, routable, dual, late := onvif.Make(0, at("[fe80::c:1]:80")), onvif.Make(1, at("[fe80::c:2]:8080")),
		onvif.Make(2, at("[fe80::c:3]:80")), onvif.Make(3, at("[fe80::c:4]:80"))
	routable.MoreAddresses = []netip.AddrPort{at("[fd00::c:2]:80")}
	dual.MoreAddresses = []netip.AddrPort{at("[fd00::c:3]:80"), at("10.99.0.2:80")}
	f, err := onvif.Start(t.Context(), onvif.Conditions{Namespace: far.Path(), Interface: "eth0"})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Stop()) })
	require.NoError(t, f.Plug(linkLocal, routable, dual))

	stream := discover(t, handler(t, "--interval=1h", "--interfaces=cameras"), "", nil)
	want := map[string]*onvif.Camera{
		"http://[fe80::c:1]/onvif/device_service": linkLocal,
		"http://[fd00::c:2]/onvif/device_service": routable, // preferred to link-local
		"http://10.99.0.2/onvif/device_service":   dual,     // preferred to IPv6
	}
	requireURLs(t, want, stream.next(t))
	require.NoError(t, f.Plug(late))
	require.NoError(t, f.Hello(late))
	want[late.URL()] = late
	requireURLs(t, want, stream.next(t))
	f.Unplug(late)
	require.NoError(t, f.Bye(late))
	delete(want, late.URL())
	requireURLs(t, want, stream.next(t))
}

func requireURLs(t *testing.T, want map[string]*onvif.Camera, found list) {
	t.Helper()
	require.Len(t, found, len(want), "%v", found)
	for service, camera := range want {
		at, err := url.Parse(service)
		require.NoError(t, err)
		require.Equal(t, map[string]string{
			"ONVIF_DEVICE_SERVICE_URL": service, "ONVIF_DEVICE_UUID": camera.UUID,
			"ONVIF_DEVICE_IP_ADDRESS": at.Hostname(), "ONVIF_DEVICE_MAC_ADDRESS": camera.MAC,
		}, found[service+"-"+camera.UUID])
	}
}

// newLink returns a network namespace. Its eth0 is linked to `cameras` in the current namespace.
func newLink(t *testing.T) *netns.Namespace {
	t.Helper()
	far, err := netns.New()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, far.Close()) })
	for _, command := range [][]string{
		{"link", "add", "cameras", "type", "veth", "peer", "name", "eth0", "netns", far.ID()},
		{"addr", "add", "fe80::1/64", "dev", "cameras", "nodad"},
		{"addr", "add", "fd00::1/64", "dev", "cameras", "nodad"},
		{"addr", "add", "10.99.0.1/24", "dev", "cameras"},
		{"link", "set", "cameras", "up"},
	} {
		require.NoError(t, run("ip", command...))
	}
	require.NoError(t, far.IP(
		"addr add fe80::c:1/64 dev eth0 nodad", "addr add fe80::c:2/64 dev eth0 nodad",
		"addr add fe80::c:3/64 dev eth0 nodad", "addr add fe80::c:4/64 dev eth0 nodad",
		"addr add fd00::c:2/64 dev eth0 nodad", "addr add fd00::c:3/64 dev eth0 nodad",
		"addr add 10.99.0.2/24 dev eth0", "link set eth0 up",
	))
	t.Cleanup(func() { require.NoError(t, run("ip", "link", "del", "cameras")) }) // deleting the namespace alone removes it later
	const ready = "ip -6 route show table all type multicast | grep -q "
	require.Eventually(t, func() bool { // the kernel adds the multicast routes asynchronously
		return run("sh", "-c", ready+"cameras") == nil && run("nsenter", "--net="+far.Path(), "sh", "-c", ready+"eth0") == nil
	}, 10*time.Second, 10*time.Millisecond)
	return far
}
