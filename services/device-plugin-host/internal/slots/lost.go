package slots

import (
	"maps"
	"slices"
	"time"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/services/device-plugin-host/internal/node"
)

// Loss is what pods of this node use without that the node holds it. It happens when an Instance was deleted and made
// anew while its slots were in use, when the node left it for a while, or when somebody edited it.
type Loss struct {
	// Free slots can be taken back.
	Free []node.Claim
	// Taken ones are held by somebody else by now: two use one slot.
	Taken []node.Claim
	// Unknown are virtual devices in use whose slot nobody knows: this process did not see them while they were held.
	Unknown []string
}

// Lost tells what pods use, or were given a moment ago, and this node does not hold by the view.
func (t *Tracker) Lost(now time.Time, view *node.View, used Use) Loss {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost(now, view, used)
}

func (t *Tracker) lost(now time.Time, view *node.View, used Use) Loss {
	var loss Loss
	inUse := t.inUse(view, used, &loss)
	for claim, slot := range t.slots {
		if slot.fresh(now) {
			inUse[claim] = true
		}
	}
	for _, claim := range slices.SortedFunc(maps.Keys(inUse), node.Claim.Compare) {
		switch view.Standing(claim) {
		case node.Free:
			loss.Free = append(loss.Free, claim)
		case node.Taken:
			loss.Taken = append(loss.Taken, claim)
		case node.Absent, node.Own:
		}
	}
	return loss
}

// inUse are the slots that the kubelet's answer is about.
func (t *Tracker) inUse(view *node.View, used Use, loss *Loss) map[node.Claim]bool {
	inUse := map[node.Claim]bool{}
	for name, instance := range view.Instances() {
		for id := range used[akriv0.ResourceName(name)] {
			if index, err := akriv0.SlotIndex(name, id); err == nil {
				inUse[node.ClaimOf(instance, uint32(index), "")] = true
			}
		}
		resource := akriv0.ResourceName(instance.GetConfiguration())
		for id := range used[resource] {
			known, ok := t.virtual[virtual{resource, id}]
			switch name := resource + " " + id; {
			case ok:
				inUse[known.claim] = true
			case !slices.Contains(loss.Unknown, name):
				loss.Unknown = append(loss.Unknown, name)
			}
		}
	}
	slices.Sort(loss.Unknown)
	return inUse
}

// Suspect tells whether the view gives reason to ask the kubelet though nothing is held: an Instance is there that was
// not, or something is free that was in use when the kubelet was last asked.
func (t *Tracker) Suspect(now time.Time, view *node.View) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	keys := view.Keys()
	maps.DeleteFunc(t.known, func(key node.Key, _ bool) bool { return !keys[key] })
	return len(t.known) < len(keys) || len(t.lost(now, view, t.last).Free) > 0
}

// Compared tells that the kubelet's last answer was compared with this view.
func (t *Tracker) Compared(view *node.View) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.known = view.Keys()
}
