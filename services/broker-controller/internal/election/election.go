// Package election lets one of several processes do the work. It follows the rules of client-go's
// leaderelection, which cannot be used without the typed clientset: a Lease is taken over when it
// has not changed for its whole duration by this process's own clock, so the clocks of the
// processes need not agree.
package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// ErrLost says that another process may be leading now.
var ErrLost = errors.New("lost the leader election")

// Leases reads and writes the Leases of a namespace.
type Leases interface {
	Get(ctx context.Context, name string, options metav1.GetOptions) (*coordinationv1.Lease, error)
	Create(ctx context.Context, lease *coordinationv1.Lease, options metav1.CreateOptions) (*coordinationv1.Lease, error)
	Update(ctx context.Context, lease *coordinationv1.Lease, options metav1.UpdateOptions) (*coordinationv1.Lease, error)
}

// Elector takes part in the election.
type Elector struct {
	Leases Leases
	// Name of the Lease, and Identity of this process: one that no other has.
	Name, Identity string
	// Duration after which a Lease that is not renewed may be taken over; the leader stops when it
	// could not renew for Deadline, which is shorter; Retry is how often either tries.
	Duration, Deadline, Retry time.Duration
	Log                       *zap.Logger
}

// Run waits to become the leader, calls lead, and gives the Lease back when lead has returned. The
// context of lead ends when ctx does or the Lease is lost; then Run returns ErrLost. It returns nil
// when it stopped because ctx ended.
func (e *Elector) Run(ctx context.Context, lead func(context.Context) error) error {
	lease := e.acquire(ctx)
	if lease == nil {
		return nil
	}
	e.Log.Info("leading")
	leading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	done := make(chan error, 1)
	go func() { done <- lead(leading) }()
	lease, err := e.hold(ctx, lease, done)
	if errors.Is(err, ErrLost) {
		stop(err)
		return errors.Join(err, <-done)
	}
	e.release(ctx, lease)
	return err
}

// acquire returns the Lease once this process holds it, or nil when ctx ends.
func (e *Elector) acquire(ctx context.Context) *coordinationv1.Lease {
	var seen string
	var seenAt time.Time
	for {
		lease, version, err := e.try(ctx, seen, seenAt)
		if lease != nil {
			return lease
		}
		if err != nil && ctx.Err() == nil {
			e.Log.Warn("leader election failed", zap.Error(err), zap.Duration("retry_in", e.Retry))
		}
		if err == nil && version != seen {
			seen, seenAt = version, time.Now()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait.Jitter(e.Retry, 0.2)):
		}
	}
}

// try returns the Lease if it could be taken, else the version that somebody else holds.
func (e *Elector) try(ctx context.Context, seen string, seenAt time.Time) (*coordinationv1.Lease, string, error) {
	ctx, cancel := context.WithTimeout(ctx, e.Deadline)
	defer cancel()
	lease, err := e.Leases.Get(ctx, e.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease, err = e.Leases.Create(ctx, e.taken(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: e.Name}}), metav1.CreateOptions{})
		return found(lease, err, "create Lease")
	}
	if err != nil {
		return nil, "", fmt.Errorf("get Lease: %w", err)
	}
	held := lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" && *lease.Spec.HolderIdentity != e.Identity
	duration := e.Duration
	if seconds := lease.Spec.LeaseDurationSeconds; seconds != nil {
		duration = time.Duration(*seconds) * time.Second
	}
	if held && (lease.ResourceVersion != seen || time.Since(seenAt) < duration) {
		return nil, lease.ResourceVersion, nil
	}
	lease, err = e.Leases.Update(ctx, e.taken(lease), metav1.UpdateOptions{})
	return found(lease, err, "take Lease")
}

func found(lease *coordinationv1.Lease, err error, doing string) (*coordinationv1.Lease, string, error) {
	switch {
	case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err): // somebody else was faster
		return nil, "", nil
	case err != nil:
		return nil, "", fmt.Errorf("%s: %w", doing, err)
	}
	return lease, "", nil
}

// hold renews the Lease until lead is done, or until it could not for too long.
func (e *Elector) hold(ctx context.Context, lease *coordinationv1.Lease, done <-chan error) (*coordinationv1.Lease, error) {
	renewed := time.Now()
	tick := time.NewTicker(e.Retry)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return lease, err
		case <-tick.C:
		}
		started := time.Now()
		// Not the context of lead: the Lease is kept while lead is stopping.
		limited, cancel := context.WithDeadline(context.WithoutCancel(ctx), renewed.Add(e.Deadline))
		next, err := e.renew(limited, lease)
		cancel()
		switch {
		case err == nil:
			lease, renewed = next, started
		case errors.Is(err, ErrLost) || time.Since(renewed) >= e.Deadline:
			return nil, fmt.Errorf("%w: %w", ErrLost, err)
		default:
			e.Log.Warn("renewing the lease failed", zap.Error(err), zap.Duration("retry_in", e.Retry))
		}
	}
}

// renew looks again when the Lease has changed: the last renewal may have arrived although its
// answer did not.
func (e *Elector) renew(ctx context.Context, lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	next, err := e.Leases.Update(ctx, e.renewed(lease), metav1.UpdateOptions{})
	if !apierrors.IsConflict(err) {
		return next, err
	}
	if lease, err = e.Leases.Get(ctx, e.Name, metav1.GetOptions{}); err != nil {
		return nil, err
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != e.Identity {
		return nil, fmt.Errorf("%w to %q", ErrLost, holder(lease))
	}
	return e.Leases.Update(ctx, e.renewed(lease), metav1.UpdateOptions{})
}

// release lets another process lead at once. Failing to costs it the Lease's duration.
func (e *Elector) release(ctx context.Context, lease *coordinationv1.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.Retry)
	defer cancel()
	free := e.renewed(lease)
	nobody := ""
	free.Spec.HolderIdentity = &nobody
	if _, err := e.Leases.Update(ctx, free, metav1.UpdateOptions{}); err != nil {
		e.Log.Warn("releasing the lease failed", zap.Error(err))
	}
}

func (e *Elector) taken(lease *coordinationv1.Lease) *coordinationv1.Lease {
	taken := e.renewed(lease)
	seconds, transitions := int32(e.Duration/time.Second), int32(0)
	if lease.Spec.LeaseTransitions != nil {
		transitions = *lease.Spec.LeaseTransitions + 1
	}
	taken.Spec.AcquireTime = taken.Spec.RenewTime
	taken.Spec.HolderIdentity, taken.Spec.LeaseDurationSeconds, taken.Spec.LeaseTransitions = &e.Identity, &seconds, &transitions
	return taken
}

func (e *Elector) renewed(lease *coordinationv1.Lease) *coordinationv1.Lease {
	renewed := lease.DeepCopy()
	now := metav1.NowMicro()
	renewed.Spec.RenewTime = &now
	return renewed
}

func holder(lease *coordinationv1.Lease) string {
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}
