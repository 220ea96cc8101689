// Package discovery holds the connections to Discovery Handlers and the Discover streams on them.
package discovery

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"akri.sh/libs/rpc"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
)

// settle is how long a handler that has just registered may take to answer before it counts as unreachable.
const settle = time.Second

// State is what is known of a connection.
type State int

// The states of a Link.
const (
	Connecting State = iota
	Reachable
	Unreachable
)

// Link is the connection to one endpoint. It stays connected by itself.
type Link struct {
	conn   *grpc.ClientConn
	cancel context.CancelFunc
	done   chan struct{}
	notify func()

	mu     sync.Mutex
	state  State
	lost   time.Time // since when it is not reachable
	kicked time.Time
}

// Open starts to connect, until Close or until ctx ends. notify is called after each change of State and must not block.
func Open(ctx context.Context, handler *registrarv1.Handler, registerer prometheus.Registerer, notify func()) (*Link, error) {
	conn, err := rpc.Dial(address(handler), registerer)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &Link{conn: conn, cancel: cancel, done: make(chan struct{}), notify: notify, lost: time.Now()}
	go l.watch(ctx)
	return l, nil
}

func address(handler *registrarv1.Handler) string {
	if handler.GetEndpointType() == registrarv1.EndpointType_ENDPOINT_TYPE_NETWORK {
		return "dns:///" + handler.GetEndpoint()
	}
	return "unix://" + handler.GetEndpoint()
}

// State returns the state, and since when the endpoint has not been reachable. A handler that has just registered is
// Connecting for a moment, whatever became of the attempt before.
func (l *Link) State(now time.Time) (state State, lost time.Time, settles time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if settles := l.kicked.Add(settle); l.state == Unreachable && now.Before(settles) {
		return Connecting, l.lost, settles
	}
	return l.state, l.lost, time.Time{}
}

// Reconnect connects now rather than after a backoff.
func (l *Link) Reconnect() {
	l.mu.Lock()
	l.kicked = time.Now()
	l.mu.Unlock()
	l.conn.ResetConnectBackoff()
}

// Close ends the connection and the streams on it.
func (l *Link) Close() {
	l.cancel()
	<-l.done
	_ = l.conn.Close()
}

func (l *Link) watch(ctx context.Context) {
	defer close(l.done)
	for {
		now := l.conn.GetState()
		if now == connectivity.Idle {
			l.conn.Connect()
		}
		if l.set(now) {
			l.notify()
		}
		if !l.conn.WaitForStateChange(ctx, now) {
			return
		}
	}
}

func (l *Link) set(now connectivity.State) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.state
	switch now {
	case connectivity.Ready:
		l.state = Reachable
	case connectivity.TransientFailure:
		l.state = Unreachable
	default:
		// A connection that was lost counts as such when it could not be made anew.
	}
	if before == Reachable && l.state != Reachable {
		l.lost = time.Now()
	}
	return l.state != before
}
