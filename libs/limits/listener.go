// Package limits bounds what one client can use of a server.
package limits

import (
	"net"

	"github.com/prometheus/client_golang/prometheus"
)

// Listener closes new connections of an address that already has the maximum number of them.
type Listener struct {
	net.Listener

	perSource int
	refused   prometheus.Counter
	open      *Counter[string] // connections by address
}

// Listen limits the connections that a listener accepts. refused counts those that it closes.
func Listen(listener net.Listener, perSource int, refused prometheus.Counter) *Listener {
	return &Listener{Listener: listener, perSource: perSource, refused: refused, open: NewCounter[string]()}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if closed, ok := l.open.Add(Source(conn.RemoteAddr()), l.perSource); ok {
			return &countedConn{conn, closed}, nil
		}
		l.refused.Inc()
		_ = conn.Close()
	}
}

// Source returns the address of a client without its port.
func Source(client net.Addr) string {
	if host, _, err := net.SplitHostPort(client.String()); err == nil {
		return host
	}
	return client.String()
}

type countedConn struct {
	net.Conn

	closed func()
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}
