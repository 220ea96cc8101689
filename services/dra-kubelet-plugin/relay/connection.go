package relay

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"
)

// farewell is how long calls may go on after the plugin has closed their connection. If the whole
// Pod ends, this container gets SIGTERM within that time.
const farewell = 2 * time.Second

// errClosed is the cause of the end of a call that is sent again.
var errClosed = errors.New("the plugin has closed the connection")

// followConnections ends the calls of a connection that the plugin has closed, so that they are
// sent to the plugin that starts next. After SIGTERM a plugin finishes its preparations before it
// ends, which can take 40 s. No next plugin starts if this relay gets SIGTERM, too: the calls are
// then finished. Calls that began after the connection was closed go on: the next plugin would
// otherwise run each twice at a time.
func (r *Relay) followConnections(ctx context.Context) {
	for r.plugin.WaitForStateChange(ctx, connectivity.Ready) {
		closed, _ := r.closed.Get()
		r.closed.Set(make(chan struct{}))
		time.AfterFunc(farewell, func() {
			if ctx.Err() == nil {
				close(closed)
			}
		})
		if !r.awaitPlugin(ctx) {
			return
		}
	}
}

// untilClosed calls attempt with a context that ends when the plugin has closed the connection. The
// error then has the code Unavailable.
func (r *Relay) untilClosed(ctx context.Context, attempt func(context.Context) error) error {
	limited, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	closed, _ := r.closed.Get()
	go func() {
		select {
		case <-closed:
			cancel(errClosed)
		case <-limited.Done():
		}
	}()

	err := attempt(limited)
	if err != nil && ctx.Err() == nil && errors.Is(context.Cause(limited), errClosed) {
		return status.Error(codes.Unavailable, errClosed.Error())
	}
	return err
}
