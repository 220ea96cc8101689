package slots

import (
	"maps"
	"slices"
	"sync"
	"time"

	"akri.sh/services/device-plugin-host/internal/node"
)

const (
	// unseenGrace is how long a slot may be held before a pod is seen to use it: the kubelet allocates devices before
	// the pod is among those it lists, and lists no pods for a while after it starts.
	unseenGrace = 20 * time.Second
	// confirm is how long a slot that was in use must be missing: two answers of the kubelet, this far apart.
	confirm = 500 * time.Millisecond
)

// Use is the set of device ids that pods have, by resource.
type Use map[string]map[string]bool

// Has tells whether a pod has the slot.
func (u Use) Has(claim node.Claim) bool { return u[claim.Resource()][claim.DeviceID()] }

// Tracker compares what this node holds with what its pods use. Time is an argument, and nothing here waits.
//
// A slot that was seen in use is idle once two answers of the kubelet, at least `confirm` apart, lack it. One that was
// never seen in use since it was reserved, or since the kubelet last came up, is doubtful after `unseenGrace`.
// The other way round, a slot that a pod uses and that this node does not hold is lost.
type Tracker struct {
	mu    sync.Mutex
	slots map[node.Claim]*sighting
	// virtual are the slots behind virtual ids, for as long as those are held or in use.
	virtual map[virtual]behind
	// asked are the slots that virtual ids may have: nobody knows whether the reservation came to be.
	asked map[virtual]node.Claim
	// last is the last answer of the kubelet, and known are the Instances that there were then and are still there.
	last  Use
	known map[node.Key]bool
}

type sighting struct {
	seen bool
	// given: to a pod, by this process.
	given bool
	// missing is since when the slot has been missing from the kubelet's answers; zero while it is there.
	missing time.Time
}

// virtual is a device of a Configuration as the kubelet knows it.
type virtual struct{ resource, id string }

// behind is the slot of a virtual id. Once it was given to a pod by this process, no other slot of that id is in use.
type behind struct {
	claim node.Claim
	given bool
}

func virtualOf(claim node.Claim) virtual { return virtual{claim.Resource(), claim.DeviceID()} }

// Ask tells that slots are about to be asked for.
func (t *Tracker) Ask(claims ...node.Claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, claim := range claims {
		if claim.VirtualID != "" {
			if t.asked == nil {
				t.asked = map[virtual]node.Claim{}
			}
			t.asked[virtualOf(claim)] = claim
		}
	}
}

// Asked are the slots that were asked for without a final answer.
func (t *Tracker) Asked() []node.Claim {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Values(t.asked), node.Claim.Compare)
}

// Refused tells that slots are not to be had.
func (t *Tracker) Refused(claims ...node.Claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, claim := range claims {
		delete(t.asked, virtualOf(claim))
	}
}

// Reserved tells that slots were given to a pod that the kubelet may not list yet.
func (t *Tracker) Reserved(now time.Time, claims ...node.Claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, claim := range claims {
		if former, ok := t.virtual[virtualOf(claim)]; ok && former.claim != claim {
			delete(t.slots, former.claim) // whoever had that slot by this id has it no more
		}
		t.put(claim, &sighting{given: true, missing: now})
		t.remember(claim, true)
		delete(t.asked, virtualOf(claim))
	}
}

// TakenBack tells that a slot is held again which a pod was seen to use, or was given a moment ago.
func (t *Tracker) TakenBack(claim node.Claim) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slots[claim] == nil {
		t.put(claim, &sighting{seen: true})
	}
}

// Forget tells that the kubelet is away, or does not know its own pods yet: each slot gets its grace anew.
func (t *Tracker) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slots = nil
}

// Observation is what an answer of the kubelet shows.
type Observation struct {
	// Idle slots were in use and are not any more.
	Idle []node.Claim
	// Doubtful ones were never seen in use. The kubelet does not list every use.
	Doubtful []node.Claim
	// Soon tells that another answer soon may make more of them idle.
	Soon bool
}

// Observe compares the slots that are held with an answer of the kubelet, which was asked for at `asked` and came at
// `now`.
func (t *Tracker) Observe(asked, now time.Time, held []node.Claim, used Use) Observation {
	t.mu.Lock()
	defer t.mu.Unlock()
	var result Observation
	before := t.slots
	t.slots = nil
	for claim, slot := range before {
		if slot.fresh(now) {
			t.put(claim, slot) // even if it is not held: see Lost
		}
	}
	for _, claim := range held {
		if t.stray(claim, held) {
			result.Idle = append(result.Idle, claim)
			continue
		}
		slot := before[claim]
		if slot == nil {
			slot = &sighting{missing: asked}
		}
		t.put(claim, slot)
		t.remember(claim, false)
		slot.observe(asked, now, claim, used, &result)
	}
	maps.DeleteFunc(t.virtual, func(_ virtual, slot behind) bool { return t.slots[slot.claim] == nil && !used.Has(slot.claim) })
	t.last = used
	return result
}

func (s *sighting) observe(asked, now time.Time, claim node.Claim, used Use, result *Observation) {
	switch {
	case s.missing.After(asked): // the answer is older than the reservation
	case used.Has(claim):
		s.seen, s.missing = true, time.Time{}
	case s.missing.IsZero():
		s.missing, result.Soon = now, true
	case s.seen && now.Sub(s.missing) >= confirm:
		result.Idle = append(result.Idle, claim)
	case !s.seen && now.Sub(s.missing) >= unseenGrace:
		result.Doubtful = append(result.Doubtful, claim)
	}
}

// fresh tells whether the slot was given to a pod that the kubelet need not list yet.
func (s *sighting) fresh(now time.Time) bool {
	return s.given && !s.seen && now.Sub(s.missing) < unseenGrace
}

func (t *Tracker) put(claim node.Claim, slot *sighting) {
	if t.slots == nil {
		t.slots = map[node.Claim]*sighting{}
	}
	t.slots[claim] = slot
}

// stray tells whether the slot is held by a virtual id that a pod got with another slot: a reservation whose outcome
// nobody knew came to be after all.
func (t *Tracker) stray(claim node.Claim, held []node.Claim) bool {
	known, ok := t.virtual[virtualOf(claim)]
	return ok && known.given && known.claim != claim && slices.Contains(held, known.claim)
}

func (t *Tracker) remember(claim node.Claim, given bool) {
	if claim.VirtualID == "" {
		return
	}
	if t.virtual == nil {
		t.virtual = map[virtual]behind{}
	}
	given = given || t.virtual[virtualOf(claim)] == behind{claim, true}
	t.virtual[virtualOf(claim)] = behind{claim, given}
}
