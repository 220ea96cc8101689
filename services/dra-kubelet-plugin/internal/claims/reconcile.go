package claims

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"akri.sh/libs/node"
)

// reconcileInterval is the longest time between two comparisons while one fails.
const reconcileInterval = time.Second

// Run compares the slots of the prepared claims with the Instances whenever these change, until ctx
// ends, and then returns nil. It releases slots that no prepared claim uses, and reserves slots of
// prepared claims again that are recorded as free, because the Instance was created again or
// edited.
func (m *Manager) Run(ctx context.Context) error {
	for {
		_, changed := m.Store.Get()
		var retry <-chan time.Time
		if err := m.reconcile(ctx); err != nil {
			retry = time.After(reconcileInterval)
			m.Log.Debug("comparing prepared claims with the reserved slots failed", zap.Error(err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-m.unreleased:
		case <-retry:
		}
	}
}

func (m *Manager) reconcile(ctx context.Context) error {
	if err := m.operation.Acquire(ctx, 1); err != nil {
		return err
	}
	defer m.operation.Release(1)
	if m.Store.CheckReady(ctx) != nil {
		return nil // the sources have not sent their state yet
	}
	snapshot, _ := m.Store.Get()
	return errors.Join(m.releaseUnused(ctx, snapshot), m.takeBack(ctx, snapshot))
}

// releaseUnused releases all slots of claims that are not prepared, and those slots of prepared
// claims that are not the chosen ones.
func (m *Manager) releaseUnused(ctx context.Context, snapshot *node.Snapshot) error {
	var unused []node.SlotClaim
	inUse := func(slots []node.SlotClaim, exists bool, claim node.SlotClaim) bool {
		return exists && (slots == nil || slices.Contains(slots, claim))
	}
	for _, claim := range snapshot.ClaimSlots() {
		slots, exists := m.prepared[claim.ClaimUID]
		if !inUse(slots, exists, claim) {
			slots, exists = m.load(claim.ClaimUID)
		}
		if !inUse(slots, exists, claim) {
			unused = append(unused, claim)
		}
	}
	if err := m.release(ctx, unused); err != nil || len(unused) == 0 {
		return err
	}
	m.Metrics.Released(len(unused))
	for _, claim := range unused {
		m.Log.Info("released a slot that no prepared claim uses", zap.String("slot", claim.Slot()), zap.String("claim", claim.ClaimUID))
	}
	return nil
}

// takeBack reserves each slot on its own, so that one failure does not affect the others.
func (m *Manager) takeBack(ctx context.Context, snapshot *node.Snapshot) error {
	var errs []error
	taken := map[node.SlotClaim]bool{}
	for uid, claims := range m.prepared {
		for _, claim := range claims {
			switch snapshot.SlotState(claim) {
			case node.SlotFree:
				if slots, _ := m.load(uid); !slices.Contains(slots, claim) {
					continue // unprepared by another instance of the service
				}
				if err := m.reserve(ctx, []node.SlotClaim{claim}); err != nil {
					errs = append(errs, err)
					continue
				}
				m.Metrics.Lost(1, 0)
				m.Log.Warn("took back a slot of a prepared claim that was recorded as free", zap.String("slot", claim.Slot()))
			case node.SlotTaken:
				if taken[claim] = true; !m.taken[claim] {
					m.Metrics.Lost(0, 1)
					m.Log.Error("slot of a prepared claim is recorded for another holder; two pods may share it", zap.String("slot", claim.Slot()))
				}
			case node.SlotHeld, node.SlotAbsent:
			}
		}
	}
	m.taken = taken
	return errors.Join(errs...)
}
