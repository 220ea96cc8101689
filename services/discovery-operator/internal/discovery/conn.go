package discovery

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"

	"akri.sh/libs/rpc"
	registrarv1 "akri.sh/proto/akri/registrar/v1"
)

// Target is an endpoint to connect to.
type Target struct {
	Handler *registrarv1.Handler
	// ProbeInterval is the time between two probes of an open connection.
	ProbeInterval time.Duration
	// Dial is nil, or replaces the connections of the kernel in tests.
	Dial Dialer
}

// AnswerTime is how long an endpoint may take to answer: a probe, and the first connection after a
// registration, because handlers register while their servers start. It is 5 s with the usual
// ProbeInterval.
func (t Target) AnswerTime() time.Duration { return t.ProbeInterval / 3 }

// Dialer connects to an address.
type Dialer = func(ctx context.Context, address string) (net.Conn, error)

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
	// Gone is true while an Unreachable network endpoint has no host. The address of a Pod that is
	// deleted has none, while that of a Pod whose container restarts refuses connections.
	Gone bool
	// Deadline is when Connecting becomes Unreachable if the connection does not change before.
	// Zero: never.
	Deadline time.Time
}

// Conn is the connection to one endpoint of a handler. It reconnects by itself.
type Conn struct {
	target  Target
	metrics prometheus.Registerer
	cancel  context.CancelFunc
	running sync.WaitGroup
	notify  func()

	mu     sync.Mutex
	conn   *grpc.ClientConn
	state  State
	noHost bool // result of the last dial of a network endpoint
	lostAt time.Time
	// connectingAt is when the handler registered, or the first attempt to connect.
	connectingAt time.Time
}

// Dial starts to connect. Callers must Close the connection. notify is called after each change of
// the state and must not block.
func Dial(ctx context.Context, target Target, metrics prometheus.Registerer, notify func()) (*Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	now := time.Now()
	c := &Conn{target: target, metrics: metrics, cancel: cancel, notify: notify, lostAt: now, connectingAt: now}
	var err error
	if c.conn, err = c.dial(); err != nil {
		cancel()
		return nil, err
	}
	c.running.Go(func() { c.watch(ctx) })
	c.running.Go(func() { c.probeWhileReady(ctx) })
	return c, nil
}

func (c *Conn) dial() (*grpc.ClientConn, error) {
	options := append([]grpc.DialOption{rpc.WithoutKeepalive()}, c.target.options()...)
	if c.target.network() {
		options = append(options, grpc.WithContextDialer(c.dialNetwork))
	}
	return rpc.Dial(c.target.address(), c.metrics, options...)
}

func (c *Conn) dialNetwork(ctx context.Context, address string) (net.Conn, error) {
	dial := c.target.Dial
	if dial == nil {
		dial = func(ctx context.Context, address string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		}
	}
	conn, err := dial(ctx, address)
	if errors.Is(err, context.Canceled) {
		return nil, err
	}
	noHost := err != nil && !errors.Is(err, syscall.ECONNREFUSED)
	c.mu.Lock()
	changed := c.noHost != noHost
	c.noHost = noHost
	c.mu.Unlock()
	if changed {
		c.notify()
	}
	return conn, err
}

func (t Target) options() []grpc.DialOption {
	if t.Dial == nil {
		return nil
	}
	return []grpc.DialOption{grpc.WithContextDialer(t.Dial)}
}

func (t Target) network() bool {
	return t.Handler.GetEndpointType() == registrarv1.EndpointType_ENDPOINT_TYPE_NETWORK
}

func (t Target) address() string {
	if t.network() {
		return "dns:///" + t.Handler.GetEndpoint()
	}
	return "unix://" + t.Handler.GetEndpoint()
}

// Status returns the status at the given time. A handler has the AnswerTime until it is
// Unreachable.
func (c *Conn) Status(now time.Time) Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	if deadline := c.connectingAt.Add(c.target.AnswerTime()); c.state == Unreachable && now.Before(deadline) {
		return Status{State: Connecting, LostAt: c.lostAt, Deadline: deadline}
	}
	return Status{State: c.state, LostAt: c.lostAt, Gone: c.state == Unreachable && c.noHost}
}

// Reconnect connects at once because the handler has registered. It does not use
// ClientConn.ResetConnectBackoff, which reads a map of the ClientConn without its lock: the process
// can crash (grpc-go pull request 9155).
func (c *Conn) Reconnect() {
	c.mu.Lock()
	c.connectingAt = time.Now()
	state, lostAt := c.state, c.lostAt
	c.mu.Unlock()
	if c.current().GetState() != connectivity.Ready {
		c.replace(state, lostAt)
	}
}

// replace closes the connection and starts to connect again. The state is that of the Conn until
// the first attempt ends.
func (c *Conn) replace(state State, lostAt time.Time) {
	conn, err := c.dial()
	if err != nil {
		return // the address was valid before
	}
	c.mu.Lock()
	previous := c.conn
	c.conn, c.state, c.lostAt = conn, state, lostAt
	c.mu.Unlock()
	_ = previous.Close()
	c.notify()
}

// Close closes the connection and its streams.
func (c *Conn) Close() {
	c.cancel()
	c.running.Wait()
	_ = c.conn.Close()
}

// current returns the connection, which is replaced when the endpoint does not respond.
func (c *Conn) current() *grpc.ClientConn {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn
}

func (c *Conn) watch(ctx context.Context) {
	for {
		conn := c.current()
		state := conn.GetState()
		switch state {
		case connectivity.Idle:
			conn.Connect()
		case connectivity.Shutdown:
			continue // replaced
		default:
		}
		if c.update(conn, state) {
			c.notify()
		}
		if !conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

// update returns whether the state changed. A lost connection stays Reachable until an attempt to
// reconnect fails.
func (c *Conn) update(conn *grpc.ClientConn, state connectivity.State) (changed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if conn != c.conn {
		return false
	}
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
