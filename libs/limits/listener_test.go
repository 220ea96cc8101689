package limits_test

import (
	"io"
	"net"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"akri.sh/libs/limits"
)

// connections are those of a limited listener.
type connections struct {
	*testing.T

	address  string
	refused  prometheus.Counter
	accepted chan net.Conn
}

func listen(t *testing.T, limit limits.Connections) connections {
	t.Helper()
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	c := connections{t, inner.Addr().String(), prometheus.NewCounter(prometheus.CounterOpts{Name: "refused"}), make(chan net.Conn, 100)}
	listener := limits.Listen(inner, limit, c.refused)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			c.accepted <- conn
		}
	}()
	return c
}

func (c connections) dial(from string) net.Conn {
	c.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	conn, err := dialer.DialContext(c.Context(), "tcp", c.address)
	require.NoError(c, err)
	c.Cleanup(func() { _ = conn.Close() })
	return conn
}

// open opens a connection that is accepted, and returns both ends.
func (c connections) open(from string) (client, server net.Conn) {
	c.Helper()
	return c.dial(from), <-c.accepted
}

// requireClosed waits until the server has closed the connection.
func (c connections) requireClosed(client net.Conn) {
	c.Helper()
	_, err := client.Read(make([]byte, 1))
	require.ErrorIs(c, err, io.EOF)
}

func TestConnectionsOfOneAddressAreLimited(t *testing.T) {
	c := listen(t, limits.Connections{PerSource: 2})
	_, first := c.open("127.0.0.1")
	_, second := c.open("127.0.0.1")
	c.requireClosed(c.dial("127.0.0.1"))
	require.InDelta(t, 1, testutil.ToFloat64(c.refused), 0)
	_, other := c.open("127.0.0.2")
	require.NoError(t, other.Close())

	require.NoError(t, first.Close())
	_ = first.Close() // counts once
	_, third := c.open("127.0.0.1")
	c.requireClosed(c.dial("127.0.0.1"))
	require.NoError(t, second.Close())
	require.NoError(t, third.Close())
}

// Addresses that have all connections share them with others, so that each has the same number.
func TestConnectionsOfAllAddressesAreLimited(t *testing.T) {
	c := listen(t, limits.Connections{PerSource: 4, Total: 8})
	hold := func(from string, count int) (clients []net.Conn) {
		for range count {
			client, _ := c.open(from)
			clients = append(clients, client)
		}
		return clients
	}
	first, second := hold("127.0.0.1", 4), hold("127.0.0.2", 4)
	require.Zero(t, testutil.ToFloat64(c.refused))

	third := hold("127.0.0.3", 2)
	c.requireClosed(first[3])
	c.requireClosed(second[3])
	require.InDelta(t, 2, testutil.ToFloat64(c.refused), 0)

	// One more would displace one of an address that then had fewer.
	c.requireClosed(c.dial("127.0.0.3"))
	client, server := c.open("127.0.0.4")
	require.InDelta(t, 4, testutil.ToFloat64(c.refused), 0)

	// A connection that ends makes room.
	require.NoError(t, server.Close())
	c.requireClosed(client)
	hold("127.0.0.3", 1)
	require.InDelta(t, 4, testutil.ToFloat64(c.refused), 0)
	for _, client := range append(third, first[0], second[0]) {
		_, err := client.Write([]byte("x"))
		require.NoError(t, err)
	}
}
