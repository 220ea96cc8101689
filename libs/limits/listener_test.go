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

func TestConnectionsOfOneAddressAreLimited(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	refused := prometheus.NewCounter(prometheus.CounterOpts{Name: "refused"})
	listener := limits.Listen(inner, 2, refused)
	defer listener.Close()
	accepted := make(chan net.Conn, 10)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	dial := func(from string) net.Conn {
		t.Helper()
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
		conn, err := dialer.DialContext(t.Context(), "tcp", inner.Addr().String())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	dial("127.0.0.1")
	dial("127.0.0.1")
	first, second := <-accepted, <-accepted
	_, err = dial("127.0.0.1").Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the third connection is closed")
	require.InDelta(t, 1, testutil.ToFloat64(refused), 0)
	dial("127.0.0.2")
	require.NoError(t, (<-accepted).Close())

	require.NoError(t, first.Close())
	_ = first.Close() // counts once
	dial("127.0.0.1")
	third := <-accepted
	_, err = dial("127.0.0.1").Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, second.Close())
	require.NoError(t, third.Close())
}
