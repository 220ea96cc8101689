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

// connectTimeout is how long a handler that has just registered counts as Connecting.
const connectTimeout = time.Second

// State is the state of a Conn.
type State int

// The states of a Conn.
const (
	Connecting State = iota
	Reachable
	Unreachable
)

// Status is the state of a Conn and its times.
type Status struct {
	State State
	// LostAt is when the endpoint stopped being reachable. It has no meaning while State is
	// Reachable.
	LostAt time.Time
	// Deadline is when Connecting becomes Unreachable if the connection does not change before.
	// Zero: never.
	Deadline time.Time
}

// Conn is the connection to one endpoint of a handler. It reconnects by itself.
type Conn struct {
	conn   *grpc.ClientConn
	cancel context.CancelFunc
	done   chan struct{}
	notify func()

	mu           sync.Mutex
	state        State
	lostAt       time.Time
	registeredAt time.Time
}

// Dial starts to connect. Callers must Close the connection. notify is called after each change of
// the state and must not block.
func Dial(ctx context.Context, handler *registrarv1.Handler, registerer prometheus.Registerer, notify func()) (*Conn, error) {
	conn, err := rpc.Dial(address(handler), registerer)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &Conn{conn: conn, cancel: cancel, done: make(chan struct{}), notify: notify, lostAt: time.Now()}
	go c.watch(ctx)
	return c, nil
}

func address(handler *registrarv1.Handler) string {
	if handler.GetEndpointType() == registrarv1.EndpointType_ENDPOINT_TYPE_NETWORK {
		return "dns:///" + handler.GetEndpoint()
	}
	return "unix://" + handler.GetEndpoint()
}

// Status returns the status at the given time. A handler that has just registered is Connecting,
// even if the last attempt to connect failed.
func (c *Conn) Status(now time.Time) Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	if deadline := c.registeredAt.Add(connectTimeout); c.state == Unreachable && now.Before(deadline) {
		return Status{State: Connecting, LostAt: c.lostAt, Deadline: deadline}
	}
	return Status{State: c.state, LostAt: c.lostAt}
}

// Reconnect connects at once because the handler has registered.
func (c *Conn) Reconnect() {
	c.mu.Lock()
	c.registeredAt = time.Now()
	c.mu.Unlock()
	c.conn.ResetConnectBackoff()
}

// Close closes the connection and its streams.
func (c *Conn) Close() {
	c.cancel()
	<-c.done
	_ = c.conn.Close()
}

func (c *Conn) watch(ctx context.Context) {
	defer close(c.done)
	for {
		state := c.conn.GetState()
		if state == connectivity.Idle {
			c.conn.Connect()
		}
		if c.update(state) {
			c.notify()
		}
		if !c.conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// update returns whether the state changed. A lost connection stays Reachable until an attempt to
// reconnect fails.
func (c *Conn) update(state connectivity.State) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	previous := c.state
	switch state {
	case connectivity.Ready:
		c.state = Reachable
	case connectivity.TransientFailure:
		c.state = Unreachable
	default:
	}
	if previous == Reachable && c.state != Reachable {
		c.lostAt = time.Now()
	}
	return c.state != previous
}
