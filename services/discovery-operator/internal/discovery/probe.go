package discovery

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/connectivity"

	"akri.sh/libs/rpc"
)

// A process that is stopped or blocked keeps its connections open. Probes detect it: each is a
// connection of its own and does not affect the Discover streams.
const (
	// ProbeInterval is the usual interval of a Target.
	ProbeInterval = 15 * time.Second
	// maxProbeFailures is the number of failures after which the endpoint is Unreachable.
	maxProbeFailures = 2
)

// Probe returns an error if the endpoint does not respond to a new connection within the
// AnswerTime.
func Probe(ctx context.Context, target Target) error {
	ctx, cancel := context.WithTimeout(ctx, target.AnswerTime())
	defer cancel()
	return rpc.Probe(ctx, target.address(), target.options()...)
}

// probeWhileReady probes a connected endpoint until ctx ends. An endpoint that does not respond is
// disconnected, and is Unreachable until the next connection is ready.
func (c *Conn) probeWhileReady(ctx context.Context) {
	ticker := time.NewTicker(c.target.ProbeInterval)
	defer ticker.Stop()
	failures := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if c.current().GetState() != connectivity.Ready || !c.isLost(Probe(ctx, c.target)) {
			failures = 0
			continue
		}
		if failures++; failures == maxProbeFailures && ctx.Err() == nil {
			c.replace(Unreachable, time.Now())
			failures = 0
		}
	}
}

// isLost returns whether a failed probe means that the open connection does not work either. The
// kernel closes the connections of a process of this node that has ended, so only a process that
// does not respond is lost: one whose socket file was removed still serves its streams.
func (c *Conn) isLost(err error) bool {
	return c.target.network() && err != nil || errors.Is(err, context.DeadlineExceeded)
}
