// Package limits bounds what one client can use of a server.
package limits

import (
	"net"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Connections are limits of open connections.
type Connections struct {
	// PerSource is the limit of one address.
	PerSource int
	// Total is the limit of all addresses. 0 means that there is none.
	Total int
}

// Listener closes new connections of an address that already has the maximum number of them. When
// all addresses together have the maximum number, a new connection replaces one of the address that
// has the most, if that has more than the address of the new one would have. So N addresses cannot
// prevent that another one has Total/(N+1) connections, less one.
type Listener struct {
	net.Listener

	limits  Connections
	refused prometheus.Counter
	mu      sync.Mutex
	total   int
	open    map[string][]*countedConn // by address, the oldest first
}

// Listen limits the connections that a listener accepts. refused counts those that it closes.
func Listen(listener net.Listener, limits Connections, refused prometheus.Counter) *Listener {
	return &Listener{Listener: listener, limits: limits, refused: refused, open: map[string][]*countedConn{}}
}

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		counted := &countedConn{Conn: conn, listener: l, source: Source(conn.RemoteAddr())}
		refused := l.admit(counted)
		if refused != nil {
			l.refused.Inc()
			_ = refused.Conn.Close()
		}
		if refused != counted {
			return counted, nil
		}
	}
}

// admit counts a connection and returns the one to close, if there is one: the new one, or another
// one that it replaces.
func (l *Listener) admit(conn *countedConn) (refused *countedConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := len(l.open[conn.source])
	if own >= l.limits.PerSource {
		return conn
	}
	if l.limits.Total > 0 && l.total >= l.limits.Total {
		others := l.open[l.heaviest()]
		if len(others) <= own+1 {
			return conn
		}
		refused = others[len(others)-1]
		l.remove(refused)
	}
	l.open[conn.source] = append(l.open[conn.source], conn)
	l.total++
	return refused
}

// heaviest returns the address with the most connections.
func (l *Listener) heaviest() (source string) {
	for candidate, conns := range l.open {
		if len(conns) > len(l.open[source]) {
			source = candidate
		}
	}
	return source
}

// remove does nothing if the connection was removed before.
func (l *Listener) remove(conn *countedConn) {
	conns := l.open[conn.source]
	i := slices.Index(conns, conn)
	if i < 0 {
		return
	}
	l.total--
	if l.open[conn.source] = slices.Delete(conns, i, i+1); len(conns) == 1 {
		delete(l.open, conn.source)
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

	listener *Listener
	source   string
}

// Close implements net.Conn.
func (c *countedConn) Close() error {
	c.listener.mu.Lock()
	c.listener.remove(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}
