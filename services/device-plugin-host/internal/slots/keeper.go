// Package slots takes slots of Instances for this node and gives them back: it reserves what the kubelet allocates, and
// releases what no pod uses any more.
package slots

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	instancev1 "akri.sh/proto/akri/instance/v1"
	"akri.sh/services/device-plugin-host/internal/node"
)

const (
	// reserveTimeout bounds all attempts: the kubelet sets no deadline for Allocate, and admits no other pod meanwhile.
	reserveTimeout = 8 * time.Second
	attemptTimeout = 2 * time.Second
	releaseTimeout = 5 * time.Second
)

// Keeper reserves and releases. Both never run at once: a slot that the kubelet hands to the next pod must not be
// released on the word of an answer that is older.
type Keeper struct {
	client instancev1.InstanceServiceClient
	store  *node.Store
	node   string
	log    *zap.Logger

	tracker Tracker

	// working has room for one: a lock that can be waited for with a context.
	working chan struct{}
	// unresolved are slots of which a release was sent and not answered: it may still be carried out.
	unresolved map[node.Claim]bool
	reported   map[string]bool // losses that the log tells of
}

// NewKeeper returns a Keeper for the node, which tells the store what the answers say.
func NewKeeper(client instancev1.InstanceServiceClient, store *node.Store, name string, log *zap.Logger) *Keeper {
	return &Keeper{client: client, store: store, node: name, log: log, working: make(chan struct{}, 1), unresolved: map[node.Claim]bool{}}
}

// Reserve takes the slots and returns once they are held, durably. Repeating it is harmless. The error is a gRPC status
// whose message a user can act on.
func (k *Keeper) Reserve(ctx context.Context, claims []node.Claim) error {
	if len(claims) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reserveTimeout)
	defer cancel()
	if !k.begin(ctx) {
		return late(claims, "it was busy with slots to be released")
	}
	defer k.end()
	if err := k.resolve(ctx, claims); err != nil {
		return err
	}
	k.tracker.Ask(claims...)
	err := retry(ctx, claims, func(ctx context.Context) error { return k.reserve(ctx, claims) })
	switch {
	case err == nil:
		k.tracker.Reserved(time.Now(), claims...)
	case Refused(err):
		k.tracker.Refused(claims...)
	}
	return err
}

// begin waits until nothing else is at work, or ctx ends.
func (k *Keeper) begin(ctx context.Context) bool {
	select {
	case k.working <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

func (k *Keeper) end() { <-k.working }

// late is the answer when time is over.
func late(claims []node.Claim, reason string) error {
	return status.Errorf(codes.Unavailable, "cannot reserve %s: instance-writer did not do it within %s: %s", names(claims), reserveTimeout, reason)
}

// Asked are the slots of virtual devices that were asked for without an answer that says who has them now.
func (k *Keeper) Asked() []node.Claim { return k.tracker.Asked() }

// resolve releases those of the slots once more whose release was not answered. A slot that "is held already" could
// otherwise be freed by the earlier call after the pod has got it. One that is released and then reserved is written
// twice, so that the earlier call meets another resourceVersion.
func (k *Keeper) resolve(ctx context.Context, claims []node.Claim) error {
	var again []node.Claim
	for _, claim := range claims {
		if k.unresolved[claim] {
			again = append(again, claim)
		}
	}
	if len(again) == 0 {
		return nil
	}
	return retry(ctx, again, func(ctx context.Context) error { return k.release(ctx, again) })
}

// retry tries until there is an answer that trying again cannot change.
func retry(ctx context.Context, claims []node.Claim, call func(context.Context) error) error {
	wait := backoff.NewExponentialBackOff()
	wait.InitialInterval, wait.MaxInterval = 20*time.Millisecond, time.Second
	for {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		err := call(attempt)
		cancel()
		if err == nil || !transient(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return late(claims, status.Convert(err).Message())
		case <-time.After(wait.NextBackOff()):
		}
	}
}

func (k *Keeper) reserve(ctx context.Context, claims []node.Claim) error {
	request := &instancev1.ReserveSlotsRequest{Node: k.node, Claims: protos(claims)}
	response, err := k.client.ReserveSlots(ctx, request, grpc.WaitForReady(true))
	if err == nil {
		k.store.Refresh(response.GetInstances())
	}
	return err
}

func (k *Keeper) release(ctx context.Context, claims []node.Claim) error {
	for _, claim := range claims {
		k.unresolved[claim] = true
	}
	response, err := k.client.ReleaseSlots(ctx, &instancev1.ReleaseSlotsRequest{Node: k.node, Claims: protos(claims)})
	if err != nil {
		return err
	}
	for _, claim := range claims {
		delete(k.unresolved, claim)
	}
	k.store.Refresh(response.GetInstances())
	return nil
}

func transient(err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Aborted, codes.ResourceExhausted, codes.Internal, codes.Unknown:
		return true
	default:
		return false
	}
}

// Refused reports whether the error means that a slot is not to be had as it was asked for: other slots may be.
func Refused(err error) bool {
	switch status.Code(err) {
	case codes.FailedPrecondition, codes.OutOfRange, codes.NotFound:
		return true
	default:
		return false
	}
}

// Forget tells that the kubelet started anew. It never waits.
func (k *Keeper) Forget() { k.tracker.Forget() }

// Outcome counts what a round changed and found.
type Outcome struct{ Released, TakenBack, Taken, Unknown int }

// settle makes what is held what is used, by an answer of the kubelet that was asked for at `asked`: it takes back what
// is in use, and releases what is idle. Of the doubtful slots those are idle that `unused` returns.
func (k *Keeper) settle(ctx context.Context, asked time.Time, used Use, unused func([]node.Claim) []node.Claim) (done Outcome, soon bool, err error) {
	if !k.begin(ctx) {
		return done, false, ctx.Err()
	}
	defer k.end()
	view, _ := k.store.Get()
	now := time.Now()
	seen := k.tracker.Observe(asked, now, view.Held(), used)
	loss := k.tracker.Lost(now, view, used)
	k.report(loss, &done)
	err = k.takeBack(ctx, loss.Free, &done)
	idle := append(seen.Idle, unused(seen.Doubtful)...)
	if len(idle) > 0 {
		ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
		defer cancel()
		if failed := k.release(ctx, idle); failed != nil {
			return done, seen.Soon, errors.Join(err, fmt.Errorf("release %s: %w", names(idle), failed))
		}
		done.Released = len(idle)
		k.log.Info("released slots that no pod uses", zap.String("slot", names(idle)))
	}
	if err == nil {
		k.tracker.Compared(view)
	}
	return done, seen.Soon, err
}

// takeBack reserves slots that pods use and that are free, one by one: one that is not to be had keeps none back.
func (k *Keeper) takeBack(ctx context.Context, lost []node.Claim, done *Outcome) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	var failed error
	for _, claim := range lost {
		one := []node.Claim{claim}
		if err := k.reserve(ctx, one); err != nil {
			if transient(err) && failed == nil {
				failed = fmt.Errorf("take back %s: %w", claim.Slot(), err)
			}
			k.log.Debug("a slot in use is recorded as free and cannot be taken back", zap.String("slot", claim.Slot()), zap.Error(err))
			continue
		}
		delete(k.unresolved, claim) // this was a write: what was sent before it comes too late
		k.tracker.TakenBack(claim)
		done.TakenBack++
		k.log.Warn("took back a slot that a pod uses and that was recorded as free", zap.String("slot", claim.Slot()))
	}
	return failed
}

// report tells of each loss that cannot be mended once.
func (k *Keeper) report(loss Loss, done *Outcome) {
	before := k.reported
	k.reported = map[string]bool{}
	for _, claim := range loss.Taken {
		if k.reported[claim.Slot()] = true; !before[claim.Slot()] {
			done.Taken++
			k.log.Error("a pod here uses a slot that somebody else holds", zap.String("slot", claim.Slot()), zap.String("resource", claim.Resource()))
		}
	}
	for _, device := range loss.Unknown {
		if k.reported[device] = true; !before[device] {
			done.Unknown++
			k.log.Error("a pod uses a virtual device and nobody knows its slot", zap.String("resource", device))
		}
	}
}

func protos(claims []node.Claim) []*instancev1.SlotClaim {
	result := make([]*instancev1.SlotClaim, 0, len(claims))
	for _, claim := range claims {
		result = append(result, claim.Proto())
	}
	return result
}

func names(claims []node.Claim) string {
	slots := make([]string, 0, len(claims))
	for _, claim := range claims {
		slots = append(slots, claim.Slot())
	}
	return strings.Join(slots, ", ")
}
