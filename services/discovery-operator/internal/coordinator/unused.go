package coordinator

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"akri.sh/services/discovery-operator/internal/discovery"
)

const (
	// unusedFactor is the interval of probes of unused endpoints in intervals of used ones.
	unusedFactor = 4
	// listenDelay is longer than the time between the creation of a socket and the moment at which
	// its server listens.
	listenDelay = 100 * time.Millisecond
	// maxProbes is the number of unused endpoints that are probed at once.
	maxProbes = 32
)

// unusedTarget is an endpoint without a connection.
type unusedTarget struct {
	discovery.Target
	key endpointKey
}

// probeResults are the states of the unused endpoints after a round of probes.
type probeResults struct {
	targets []unusedTarget
	states  []discovery.State
}

// probeUnused probes the unused endpoints at an interval, and when the socket of one has appeared,
// until ctx ends. The registrar removes those that stay unreachable.
func (c *Coordinator) probeUnused(ctx context.Context) {
	ticker := time.NewTicker(unusedFactor * c.ProbeInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-c.appeared:
			select {
			case <-ctx.Done():
				return
			case <-time.After(listenDelay):
			}
		}
		if targets, _ := c.unused.Get(); len(targets) > 0 {
			c.probed.Set(probeAll(ctx, targets))
			c.pending.Notify()
		}
	}
}

func probeAll(ctx context.Context, targets []unusedTarget) *probeResults {
	results := &probeResults{targets: targets, states: make([]discovery.State, len(targets))}
	var probes errgroup.Group
	probes.SetLimit(maxProbes)
	for i, target := range targets {
		probes.Go(func() error {
			results.states[i] = discovery.Reachable
			if discovery.Probe(ctx, target.Target) != nil {
				results.states[i] = discovery.Unreachable
			}
			return nil
		})
	}
	_ = probes.Wait()
	return results
}

// unused returns the listed endpoints without a connection.
func (e *endpoints) unused() []unusedTarget {
	var targets []unusedTarget
	for key, endpoint := range e.byKey {
		if endpoint.listed && endpoint.conn == nil {
			targets = append(targets, unusedTarget{e.target(endpoint), key})
		}
	}
	return targets
}

// setProbed applies the results to the endpoints that have not registered since they were probed. A
// handler that has just registered may not respond yet.
func (e *endpoints) setProbed(results *probeResults, now time.Time) {
	for i, target := range results.targets {
		endpoint, state := e.byKey[target.key], results.states[i]
		if endpoint == nil || endpoint.handler.GetRegistration() != target.Handler.GetRegistration() {
			continue
		}
		if state == discovery.Reachable || now.Sub(endpoint.registeredAt) >= target.AnswerTime() {
			endpoint.unusedState = state
		}
	}
}
