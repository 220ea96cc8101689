// Package leader elects one of the replicas of a service by a Lease.
package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/util/retry"
)

// ErrLeaseLost means that the Lease was not renewed in time, so another process may lead.
var ErrLeaseLost = errors.New("lost the leader election lease")

// The times of client-go's leaderelection. A standby replica sees the last renewal at most one
// retry late, and the expiry at most one retry late. client-go makes a retry up to 2.2 times the
// period. So a takeover takes at most 12 s + 2 x 3.3 s = 18.6 s.
const (
	leaseDuration = 12 * time.Second
	renewDeadline = 8 * time.Second
	retryPeriod   = 1500 * time.Millisecond
)

// Election elects a leader by a Lease.
type Election struct {
	REST *rest.Config
	// Namespace and Name of the Lease.
	Namespace, Name string
	// Identity is the holder of the Lease. It must be unique among running processes.
	Identity string
	// LeaseDuration, RenewDeadline and RetryPeriod are those of client-go's leaderelection.
	// LeaseDuration must exceed the sum of the others: a leader notices that the Lease is lost up
	// to that time after the last renewal.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	Log                                       *zap.Logger
}

// Run waits until this process leads, calls lead and releases the Lease when lead has returned. The
// context of lead ends with ctx or when the Lease is lost; then Run returns ErrLeaseLost. Run
// returns nil if ctx ends before it leads.
//
// client-go's ReleaseOnCancel is not used: it also releases a Lease that could not be renewed,
// before it cancels the context of the leader. Two processes would lead until the first one has
// stopped.
func (e Election) Run(ctx context.Context, lead func(context.Context) error) error {
	if e.LeaseDuration <= e.RenewDeadline+e.RetryPeriod {
		return fmt.Errorf("LeaseDuration %s must exceed RenewDeadline %s and RetryPeriod %s together", e.LeaseDuration, e.RenewDeadline, e.RetryPeriod)
	}
	lock, err := e.lock()
	if err != nil {
		return err
	}
	leading := make(chan context.Context, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: e.LeaseDuration, RenewDeadline: e.RenewDeadline, RetryPeriod: e.RetryPeriod,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { leading <- ctx },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("create leader elector: %w", err)
	}

	// The Lease is renewed until lead has returned, so the elector does not stop with ctx.
	electing, stop := context.WithCancel(context.WithoutCancel(ctx))
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		elector.Run(electing)
	}()
	defer func() {
		stop()
		<-stopped
		e.release(ctx, lock)
	}()

	select {
	case <-ctx.Done():
		return nil
	case leaseCtx := <-leading:
		return leadUntilLost(ctx, leaseCtx, lead)
	}
}

// leadUntilLost calls lead. leaseCtx ends when the Lease is lost.
func leadUntilLost(ctx, leaseCtx context.Context, lead func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(leaseCtx, cancel)()
	err := lead(ctx)
	if leaseCtx.Err() != nil {
		return errors.Join(ErrLeaseLost, err)
	}
	return err
}

func (e Election) lock() (resourcelock.Interface, error) {
	config := rest.CopyConfig(e.REST)
	config.Timeout = e.RenewDeadline / 2 // as in resourcelock.NewFromKubeconfig: one slow request must not cost the Lease
	client, err := coordinationv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("create client for leases: %w", err)
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name},
		Client:     client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: e.Identity},
	}, nil
}

// release lets another process lead at once. If it fails, the others wait until the Lease expires.
func (e Election) release(ctx context.Context, lock resourcelock.Interface) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.RetryPeriod)
	defer cancel()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		record, _, err := lock.Get(ctx)
		if err != nil || record.HolderIdentity != e.Identity {
			return err
		}
		now := metav1.Now()
		return lock.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaderTransitions: record.LeaderTransitions, LeaseDurationSeconds: 1, AcquireTime: now, RenewTime: now,
		})
	})
	if err != nil && !apierrors.IsNotFound(err) {
		e.Log.Warn("releasing the lease failed", zap.Error(err))
	}
}
