package address_test

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/handler/address"
)

var network = []netip.Prefix{netip.MustParsePrefix("192.0.2.7/24"), netip.MustParsePrefix("fe80::7/64")}

// Finding 10: the addresses that a host may name.
func TestAllows(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "10.96.0.1")
	for _, c := range []struct {
		ip, from string
		allow    string
		want     bool
	}{
		{"192.0.2.9", "192.0.2.8", "", true},
		{"192.0.2.9", "198.51.100.1", "", true},
		{"198.51.100.1", "198.51.100.1", "", true},
		{"::ffff:192.0.2.9", "192.0.2.8", "", true},
		{"fe80::9%eth0", "fe80::8%eth0", "", true},
		{"198.51.100.1", "192.0.2.8", "", false},
		{"198.51.100.1", "192.0.2.8", "198.51.100.0/24", true},
		{"127.0.0.1", "192.0.2.8", "", false},
		{"127.0.0.1", "127.0.0.2", "", true},
		{"::1", "192.0.2.8", "", false},
		{"169.254.169.254", "192.0.2.8", "", false},
		{"0.0.0.0", "0.0.0.0", "0.0.0.0/0", false},
		{"224.0.0.1", "192.0.2.8", "0.0.0.0/0", false},
		{"255.255.255.255", "192.0.2.8", "0.0.0.0/0", false},
		{"10.96.0.1", "10.96.0.1", "", false},
		{"10.96.0.1", "192.0.2.8", "10.96.0.0/16", true},
	} {
		var allow []netip.Prefix
		if c.allow != "" {
			allow = append(allow, netip.MustParsePrefix(c.allow))
		}
		origin := address.Origin{Addr: netip.MustParseAddr(c.from), Networks: network}
		require.Equal(t, c.want, address.NewPolicy(allow).Allows(netip.MustParseAddr(c.ip), origin), "%+v", c)
	}
}

// Finding 10: a name that resolves to an address that must not be called is not called.
func TestControl(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	dialer := net.Dialer{ControlContext: address.Control}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	dial := func(from string) error {
		ctx := address.Policy{}.WithOrigin(t.Context(), address.Origin{Addr: netip.MustParseAddr(from)})
		conn, err := dialer.DialContext(ctx, "tcp4", net.JoinHostPort("localhost", port))
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	require.NoError(t, dial("127.0.0.1"))
	require.ErrorContains(t, dial("192.0.2.8"), "127.0.0.1 is not on the network of 192.0.2.8, which named it; allow it with --allow-networks")
}
