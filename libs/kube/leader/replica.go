package leader

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/util/uuid"

	"akri.sh/libs/kube"
)

// Replica is one process of a service of which one replica leads.
type Replica struct {
	// Election has defaults for the identity, the host name and a random UUID, and for its times.
	Election
	// Elect makes the replicas elect the leader. Otherwise this process always leads.
	Elect bool
	// StandbyWhenLost makes a leader that has lost the Lease a candidate again. Otherwise Run
	// returns ErrLeaseLost.
	StandbyWhenLost bool
	// Cache is what Lead reads. It runs in all replicas.
	Cache kube.Informers
	// All are further parts that run in all replicas.
	All []func(ctx context.Context) error
	// Lead runs in the leader, with a synced Cache.
	Lead func(ctx context.Context) error
	// Leading is 1 in the leader.
	Leading interface{ Set(value float64) }
}

// Run runs all parts until ctx ends or one of them ends with an error.
func (r Replica) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { r.Cache.Run(ctx); return nil })
	for _, run := range r.All {
		group.Go(func() error { return run(ctx) })
	}
	group.Go(func() error {
		defer cancel()
		if kube.WaitForSync(ctx, r.Cache) != nil {
			return nil // ctx ended
		}
		return r.elect(ctx)
	})
	return group.Wait()
}

// elect leads when this process is the leader.
func (r Replica) elect(ctx context.Context) error {
	if !r.Elect {
		return r.lead(ctx)
	}
	if r.Identity == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("get host name: %w", err)
		}
		r.Identity = host + "_" + string(uuid.NewUUID())
	}
	r.LeaseDuration, r.RenewDeadline, r.RetryPeriod = leaseDuration, renewDeadline, retryPeriod
	for {
		err := r.Election.Run(ctx, r.lead)
		if ctx.Err() != nil || !r.StandbyWhenLost || !errors.Is(err, ErrLeaseLost) {
			return err
		}
		r.Log.Warn("lost the Lease; waiting to lead again")
	}
}

func (r Replica) lead(ctx context.Context) error {
	r.Leading.Set(1)
	defer r.Leading.Set(0)
	return r.Lead(ctx)
}
