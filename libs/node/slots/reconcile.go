package slots

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"akri.sh/libs/node"
)

// Result counts the slots of one reconciliation: released because they are idle, released because
// their use was never seen, taken back, lost to another holder, and lost with an unknown slot.
type Result struct{ Idle, Unconfirmed, TakenBack, Taken, Unknown int }

// compare takes back the free slots that Pods use and releases the slots that no Pod uses. inUse is
// a list of the kubelet that was requested at the given time.
func (r *Reclaimer) compare(ctx context.Context, requested time.Time, inUse Devices) (result Result, err error) {
	m := r.Manager
	if err := m.operation.Acquire(ctx, 1); err != nil {
		return result, err
	}
	defer m.operation.Release(1)
	snapshot, _ := m.store.Get()
	now := time.Now()
	observed := m.tracker.Observe(requested, now, snapshot.HeldSlots(), inUse)
	lost := m.tracker.Lost(now, snapshot, inUse)
	r.report(lost, &result)
	err = r.takeBack(ctx, lost.Free, &result)
	unconfirmed := r.unused(ctx, observed.Unconfirmed)
	if releaseErr := r.releaseUnused(ctx, slices.Concat(observed.Idle, unconfirmed)); releaseErr != nil {
		return result, errors.Join(err, releaseErr)
	}
	m.tracker.Released(unconfirmed...)
	result.Idle, result.Unconfirmed = len(observed.Idle), len(unconfirmed)
	r.logReleased(observed.Idle, "idle")
	r.logReleased(unconfirmed, "unconfirmed")
	if err == nil {
		m.tracker.SetCompared(snapshot)
	}
	return result, err
}

func (r *Reclaimer) releaseUnused(ctx context.Context, claims []node.SlotClaim) error {
	if len(claims) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	if err := r.Manager.release(ctx, claims); err != nil {
		return fmt.Errorf("release %s: %w", names(claims), err)
	}
	return nil
}

func (r *Reclaimer) logReleased(claims []node.SlotClaim, reason string) {
	if len(claims) > 0 {
		r.Log.Info("released unused slots", zap.String("slot", names(claims)), zap.String("reason", reason))
	}
}

// takeBack reserves free slots that Pods use. It reserves each slot on its own, so that one failure
// does not affect the others. It returns the first transient error.
func (r *Reclaimer) takeBack(ctx context.Context, free []node.SlotClaim, result *Result) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	m := r.Manager
	var firstErr error
	for _, claim := range free {
		if err := m.store.Reserve(ctx, m.client, []node.SlotClaim{claim}); err != nil {
			if transient(err) && firstErr == nil {
				firstErr = fmt.Errorf("take back %s: %w", claim.Slot(), err)
			}
			r.Log.Debug("taking back a slot in use failed", zap.String("slot", claim.Slot()), zap.Error(err))
			continue
		}
		m.unanswered.Delete(claim) // the reservation was a write, so an earlier release fails
		m.tracker.TakenBack(time.Now(), claim)
		result.TakenBack++
		r.Log.Warn("took back a slot that a pod uses and that was recorded as free", zap.String("slot", claim.Slot()))
	}
	return firstErr
}

// report logs and counts each slot that cannot be taken back once.
func (r *Reclaimer) report(lost Lost, result *Result) {
	previous := r.reported
	r.reported = map[string]bool{}
	for _, claim := range lost.Taken {
		r.reported[claim.Slot()] = true
		if !previous[claim.Slot()] {
			result.Taken++
			r.Log.Error("slot in use is recorded for another holder; two pods may share it",
				zap.String("slot", claim.Slot()), zap.String("resource", claim.Resource()))
		}
	}
	for _, device := range lost.Unknown {
		name := device.Resource + "/" + device.ID
		r.reported[name] = true
		if !previous[name] {
			result.Unknown++
			r.Log.Error("slot of a virtual device in use is unknown; recreate its pod",
				zap.String("resource", device.Resource), zap.String("device_id", device.ID))
		}
	}
}
