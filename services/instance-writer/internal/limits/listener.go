// Package limits bounds what one client can use of a server.
package limits

import (
	"net"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Listener closes new connections of an address that already has the maximum number of them.
type Listener struct {
	net.Listener

	perSource int
	refused   prometheus.Counter

	mu   sync.Mutex
	open map[string]int // connections by address
}

// Listen limits the connections that a listener accepts. refused counts those that it closes.
func Listen(listener net.Listener, perSource int, refused prometheus.Counter) *Listener {
	return &Listener{Listener: listener, perSource: perSource, refused: refused, open: map[string]int{}}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		source := sourceOf(conn)
		if l.add(source) {
			return &countedConn{Conn: conn, closed: sync.OnceFunc(func() { l.remove(source) })}, nil
		}
		l.refused.Inc()
		_ = conn.Close()
	}
}

func (l *Listener) add(source string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[source] >= l.perSource {
		return false
	}
	l.open[source]++
	return true
}

func (l *Listener) remove(source string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open[source]--; l.open[source] == 0 {
		delete(l.open, source)
	}
}

func sourceOf(conn net.Conn) string {
	address := conn.RemoteAddr().String()
	if host, _, err := net.SplitHostPort(address); err == nil {
		return host
	}
	return address
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
