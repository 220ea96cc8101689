package slots

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"akri.sh/libs/failurelog"
	"akri.sh/libs/node"
)

// rewriteInterval is the shortest time between two requests to write the checkpoint file.
const rewriteInterval = 5 * time.Second

// ReclaimerConfig has the dependencies of a Reclaimer.
type ReclaimerConfig struct {
	Manager *Manager
	Log     *zap.Logger
	// PodDevices returns the devices of all Pods, except those of init containers.
	PodDevices func(context.Context) (Devices, error)
	// CheckpointDevices returns the devices in the kubelet's checkpoint file. It includes the
	// devices of init containers, and of Pods that ended after the file was written.
	CheckpointDevices func() (Devices, error)
	// RewriteCheckpoint makes the kubelet write the file again. resource is that of an unconfirmed
	// slot.
	RewriteCheckpoint func(ctx context.Context, resource string)
	// Lock is called before each reconciliation, and unlock after it, if this process does not hold
	// the lock all the time. While it returns ErrLocked nothing is reconciled.
	Lock func() (unlock func(), err error)
	// OnResult is called with the result of each reconciliation.
	OnResult func(Result)
}

// Reclaimer releases the slots that no Pod uses, and takes back slots that a Pod uses and that are
// recorded as free.
type Reclaimer struct {
	ReclaimerConfig

	rewritten time.Time
	failures  *failurelog.Log
	reported  map[string]bool // lost slots and virtual devices that are logged already
}

// NewReclaimer returns a Reclaimer. Run starts it.
func NewReclaimer(config ReclaimerConfig) *Reclaimer {
	if config.Lock == nil {
		config.Lock = func() (func(), error) { return func() {}, nil }
	}
	return &Reclaimer{ReclaimerConfig: config, failures: failurelog.New(config.Log,
		"comparing reserved slots with the devices of pods keeps failing; unused slots may stay reserved",
		"comparing reserved slots with the devices of pods works again")}
}

// Run reconciles at the intervals of the tracker until ctx ends, and then returns nil. It is idle
// while this node holds no slot and no slot can be lost.
func (r *Reclaimer) Run(ctx context.Context) error {
	for {
		snapshot, changed := r.Manager.store.Get()
		if len(snapshot.HeldSlots()) == 0 && !r.Manager.tracker.NeedsCheck(time.Now(), snapshot) {
			r.failures.Record(nil)
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
				continue
			}
		}
		err := r.reconcile(ctx)
		locked := errors.Is(err, ErrLocked)
		if locked {
			err = nil
		}
		if err != nil {
			r.Log.Debug("comparing reserved slots with the devices of pods failed",
				zap.Error(err), zap.Duration("retry_in", listInterval))
		}
		r.failures.Record(err)
		if !r.wait(ctx, err == nil && !locked) {
			return nil
		}
	}
}

// wait waits until the next list of the kubelet is due, at most listInterval. If earlier is false
// it waits that long. It returns false when ctx ended.
func (r *Reclaimer) wait(ctx context.Context, earlier bool) bool {
	listed := time.Now()
	for {
		snapshot, changed := r.Manager.store.Get()
		interval := listInterval
		if earlier {
			interval = r.Manager.tracker.NextList(time.Now(), snapshot)
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(time.Until(listed.Add(interval))):
			return true
		case <-changed:
		case <-r.Manager.reserved:
		}
	}
}

func (r *Reclaimer) reconcile(ctx context.Context) error {
	unlock, err := r.Lock()
	if err != nil {
		r.Manager.tracker.Reset()
		return err
	}
	defer unlock()
	r.Log.Debug("reclaiming unused slots - start") // tests of upstream Akri wait for this message
	requested := time.Now()
	inUse, err := r.PodDevices(ctx)
	if err != nil {
		r.Manager.tracker.Reset()
		return err
	}
	result, err := r.compare(ctx, requested, inUse)
	r.OnResult(result)
	return err
}

// unused returns the slots that are not in the kubelet's checkpoint file. The file may list Pods
// that have ended, so it is written again for the next reconciliations.
func (r *Reclaimer) unused(ctx context.Context, unconfirmed []node.SlotClaim) []node.SlotClaim {
	if len(unconfirmed) == 0 {
		return nil
	}
	devices, err := r.CheckpointDevices()
	if err != nil {
		r.Log.Warn("slots without a known pod stay reserved: reading the kubelet's checkpoint failed",
			zap.String("slot", names(unconfirmed)), zap.Error(err))
	}
	var unused []node.SlotClaim
	if err == nil {
		unused = slices.DeleteFunc(slices.Clone(unconfirmed), func(claim node.SlotClaim) bool {
			return devices.Has(claim.Resource(), claim.DeviceID())
		})
	}
	if len(unused) < len(unconfirmed) && time.Since(r.rewritten) >= rewriteInterval {
		r.rewritten = time.Now()
		r.RewriteCheckpoint(ctx, unconfirmed[0].Resource())
	}
	return unused
}
