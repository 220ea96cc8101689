package rpc

import (
	"context"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
)

// Replicas is a connection to a server with several replicas behind one address, such as a Service,
// which chooses a replica for each connection. gRPC keeps a connection while it works, so that a
// client whose calls are refused would never reach another replica. After a refused call, the next
// call uses a new connection. The previous one closes after its last call, so that refused streams
// do not end reservations in progress. Callers limit the connections with the backoff of their
// calls.
type Replicas struct {
	dial func() (*grpc.ClientConn, error)

	mu sync.Mutex
	// current is the connection for new calls.
	current *grpc.ClientConn
	// calls is the number of calls in progress by connection.
	calls   map[*grpc.ClientConn]int
	closing sync.WaitGroup
	closed  bool
}

// DialReplicas returns a connection that does not depend on one replica. It is otherwise as Dial.
func DialReplicas(address string, registerer prometheus.Registerer, options ...grpc.DialOption) (*Replicas, error) {
	r := &Replicas{calls: map[*grpc.ClientConn]int{}}
	r.dial = func() (*grpc.ClientConn, error) { return Dial(address, registerer, options...) }
	var err error
	r.current, err = r.dial()
	return r, err
}

// Invoke implements grpc.ClientConnInterface.
func (r *Replicas) Invoke(ctx context.Context, method string, request, response any, options ...grpc.CallOption) error {
	conn, ended := r.begin()
	return conn.Invoke(ctx, method, request, response, append(slices.Clip(options), ended)...)
}

// NewStream implements grpc.ClientConnInterface.
func (r *Replicas) NewStream(
	ctx context.Context, description *grpc.StreamDesc, method string, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	conn, ended := r.begin()
	return conn.NewStream(ctx, description, method, append(slices.Clip(options), ended)...)
}

// begin counts a call.
func (r *Replicas) begin() (conn *grpc.ClientConn, ended grpc.CallOption) {
	r.mu.Lock()
	defer r.mu.Unlock()
	conn = r.current
	r.calls[conn]++
	return conn, grpc.OnFinish(func(err error) { r.end(conn, refused(err)) })
}

func (r *Replicas) end(conn *grpc.ClientConn, refused bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return // Close closes all connections, and waits for those that closed before
	}
	if refused && conn == r.current {
		if next, err := r.dial(); err == nil { // as in DialReplicas
			r.current = next
		}
	}
	if r.calls[conn]--; r.calls[conn] > 0 {
		return
	}
	delete(r.calls, conn)
	if conn != r.current {
		r.closing.Go(func() { _ = conn.Close() }) // not in a callback of gRPC
	}
}

// Close ends all calls and closes their connections.
func (r *Replicas) Close() error {
	r.mu.Lock()
	r.closed = true
	conns := []*grpc.ClientConn{r.current}
	for conn := range r.calls {
		conns = append(conns, conn)
	}
	r.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close() // the only error is that it is closed already
	}
	r.closing.Wait()
	return nil
}
