// Package slots reserves and releases slots of Instances for this node. It reserves the slots of
// devices that the kubelet allocates, releases slots that no Pod uses, and takes back slots that
// Pods use and that are recorded as free.
package slots

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"golang.org/x/sync/semaphore"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/apimachinery/pkg/util/sets"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/node"
	"akri.sh/libs/rpc"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

const (
	// reserveTimeout bounds all attempts. The kubelet sets no deadline for Allocate, and admits no
	// other Pod while it waits.
	reserveTimeout = 8 * time.Second
	attemptTimeout = 2 * time.Second
	releaseTimeout = 5 * time.Second

	minRetryDelay = 20 * time.Millisecond
	maxRetryDelay = time.Second
)

// Manager reserves and releases slots, one operation at a time: a slot that the kubelet allocates
// to the next Pod must not be released because of an older list of Pods.
type Manager struct {
	client instancev1.InstanceServiceClient
	store  *node.Store

	tracker *Tracker
	// reserved is set when slots were reserved for a Pod.
	reserved broadcast.Signal

	// operation has weight 1. Unlike a mutex, it can be acquired with a context. It guards
	// unanswered.
	operation *semaphore.Weighted
	// unanswered are slots whose release was sent and not answered. The release may still be
	// carried out.
	unanswered sets.Set[node.SlotClaim]
}

// NewManager returns a Manager for the node of the store.
func NewManager(client instancev1.InstanceServiceClient, store *node.Store) *Manager {
	return &Manager{
		client: client, store: store, tracker: NewTracker(), reserved: broadcast.NewSignal(),
		operation: semaphore.NewWeighted(1), unanswered: sets.New[node.SlotClaim](),
	}
}

// Reserve reserves all of the slots or none, and returns after the API server has stored the
// reservation. It is idempotent. The error is a gRPC status with a message for users.
func (m *Manager) Reserve(ctx context.Context, claims []node.SlotClaim) error {
	if len(claims) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reserveTimeout)
	defer cancel()
	if err := m.operation.Acquire(ctx, 1); err != nil {
		return notConfirmed(claims, "another reservation or release was in progress")
	}
	defer m.operation.Release(1)
	if err := m.releaseUnanswered(ctx, claims); err != nil {
		return err
	}
	m.tracker.AddPending(claims...)
	err := retry(ctx, claims, func(ctx context.Context) error { return m.store.Reserve(ctx, m.client, claims) })
	switch {
	case err == nil:
		m.tracker.Reserved(time.Now(), claims...)
		m.reserved.Notify()
	case Refused(err):
		m.tracker.RemovePending(claims...)
	}
	return err
}

// Pending returns the slots of virtual devices whose reservation was sent without a final response.
// The same virtual device must request the same slot again, because it could hold two otherwise.
func (m *Manager) Pending() []node.SlotClaim { return m.tracker.Pending() }

// AllocationRefused records that the kubelet's last allocation was refused. The Pod may have got
// slots of other resources before.
func (m *Manager) AllocationRefused() { m.tracker.Refused(time.Now()) }

// KubeletRestarted resets the observed use of slots. It does not block.
func (m *Manager) KubeletRestarted() { m.tracker.Reset() }

// releaseUnanswered repeats the release of those slots whose release was not answered. Otherwise
// the earlier call could free a slot after the Pod has got it. Release and reservation are two
// writes, so the earlier call meets another resourceVersion.
func (m *Manager) releaseUnanswered(ctx context.Context, claims []node.SlotClaim) error {
	unanswered := slices.DeleteFunc(slices.Clone(claims), func(claim node.SlotClaim) bool { return !m.unanswered.Has(claim) })
	if len(unanswered) == 0 {
		return nil
	}
	return retry(ctx, unanswered, func(ctx context.Context) error { return m.release(ctx, unanswered) })
}

func (m *Manager) release(ctx context.Context, claims []node.SlotClaim) error {
	m.unanswered.Insert(claims...)
	if err := m.store.Release(ctx, m.client, claims); err != nil {
		return err
	}
	m.unanswered.Delete(claims...)
	return nil
}

// retry repeats the call until it succeeds, fails with an error that is not transient, or ctx ends.
func retry(ctx context.Context, claims []node.SlotClaim, call func(context.Context) error) error {
	var last error
	_, err := backoff.Retry(ctx, func() (struct{}, error) {
		attemptCtx, cancel := context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
		if last = call(attemptCtx); last != nil && !transient(last) {
			return struct{}{}, backoff.Permanent(last)
		}
		return struct{}{}, last
	}, backoff.WithBackOff(rpc.NewBackOff(minRetryDelay, maxRetryDelay)), backoff.WithMaxElapsedTime(0))
	if transient(last) { // ctx ended
		return notConfirmed(claims, status.Convert(last).Message())
	}
	return err
}

func notConfirmed(claims []node.SlotClaim, reason string) error {
	return status.Errorf(codes.Unavailable, "reserve %s: instance-writer did not confirm it within %s: %s",
		names(claims), reserveTimeout, reason)
}

func transient(err error) bool {
	return slices.Contains([]codes.Code{
		codes.Unavailable, codes.DeadlineExceeded, codes.Aborted, codes.ResourceExhausted, codes.Internal, codes.Unknown,
	}, status.Code(err))
}

// Refused reports whether the error means that a slot cannot be reserved. Other slots may be
// available.
func Refused(err error) bool {
	return slices.Contains([]codes.Code{codes.FailedPrecondition, codes.OutOfRange, codes.NotFound}, status.Code(err))
}

func names(claims []node.SlotClaim) string {
	slots := make([]string, 0, len(claims))
	for _, claim := range claims {
		slots = append(slots, claim.Slot())
	}
	return strings.Join(slots, ", ")
}
