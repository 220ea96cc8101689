// Package timeline records in memory what happens to devices, for longer than the API server keeps
// Events.
package timeline

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
)

const (
	// maxOfDevice is the number of entries of a device.
	maxOfDevice = 100
	// maxEntries is the number of entries of all devices, which take about 200 bytes each.
	maxEntries = 50_000
)

// Entry is what happened to a device. Its text has names of the Instance only, so that a user who
// may list Instances may read it.
type Entry struct {
	Time time.Time
	Text string
}

// Timeline is what happened to a device.
type Timeline struct {
	// Since is when recording began.
	Since time.Time
	// Entries are ordered by time, the last first. Those before the last 100 are not kept.
	Entries []Entry
}

// Recorder records the Timelines of all devices.
type Recorder struct {
	mu      sync.Mutex
	since   time.Time
	devices map[string]*device
	// entries is the number of all entries.
	entries int
}

// device is the last known state of a device with its entries, the last at the end.
type device struct {
	facts   *facts
	entries []Entry
}

// facts are the state of a device that exists.
type facts struct {
	nodes []string
	// slots has the nodes that hold slots.
	slots map[string]string
	state string
}

func factsOf(s *explain.Snapshot, instance *akriv0.Instance) *facts {
	f := &facts{nodes: instance.Spec.Nodes, slots: map[string]string{}}
	for name, value := range instance.Spec.DeviceUsage {
		if holder, err := akriv0.ParseSlotHolder(value); err == nil && !holder.Free() {
			f.slots[name] = holder.Node
		}
	}
	verdict := explain.Device(s, instance)
	f.state = verdict.State.Word()
	if len(verdict.Causes) > 0 {
		f.state += ": " + string(verdict.Causes[0].ID)
	}
	return f
}

// Observe compares the devices with those of the call before. It returns whether anything has
// happened. The first call only begins the record.
func (r *Recorder) Observe(s *explain.Snapshot, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	begins := r.devices == nil
	if begins {
		r.since, r.devices = now, map[string]*device{}
	}

	changed := false
	exist := map[string]bool{}
	for i := range s.Instances {
		instance := &s.Instances[i]
		key := key(instance.Namespace, instance.Name)
		exist[key] = true
		d := r.device(key)
		after := factsOf(s, instance)
		if !begins {
			changed = r.add(d, now, changes(d.facts, after)...) || changed
		}
		d.facts = after
	}
	for key, d := range r.devices {
		if !exist[key] && d.facts != nil {
			changed = r.add(d, now, "removed") || changed
			d.facts = nil
		}
	}
	r.trim()
	return changed
}

func key(namespace, name string) string { return namespace + "/" + name }

func (r *Recorder) device(key string) *device {
	if r.devices[key] == nil {
		r.devices[key] = &device{}
	}
	return r.devices[key]
}

// add adds entries to a device and reports whether there are any.
func (r *Recorder) add(d *device, now time.Time, texts ...string) bool {
	for _, text := range texts {
		d.entries = append(d.entries, Entry{now, text})
		r.entries++
	}
	r.forget(d, len(d.entries)-maxOfDevice)
	return len(texts) > 0
}

// forget removes the oldest entries of a device.
func (r *Recorder) forget(d *device, count int) {
	if count > 0 {
		d.entries = slices.Clone(d.entries[count:])
		r.entries -= count
	}
}

// trim removes entries if there are too many: those of devices that do not exist any more, the
// longest gone first, and then the oldest of the longest records.
func (r *Recorder) trim() {
	if r.entries > maxEntries {
		r.trimGone()
	}
	for most := maxOfDevice / 2; r.entries > maxEntries; most /= 2 {
		for _, d := range r.devices {
			r.forget(d, len(d.entries)-most)
		}
	}
	maps.DeleteFunc(r.devices, func(_ string, d *device) bool { return d.facts == nil && len(d.entries) == 0 })
}

// trimGone makes room for a tenth of the entries, so that it need not run after each change.
func (r *Recorder) trimGone() {
	var gone []*device
	for _, d := range r.devices {
		if d.facts == nil {
			gone = append(gone, d)
		}
	}
	slices.SortFunc(gone, func(a, b *device) int { return a.last().Compare(b.last()) })
	for _, d := range gone {
		if r.entries <= maxEntries-maxEntries/10 {
			return
		}
		r.forget(d, len(d.entries))
	}
}

// last returns the time of the last entry of a device that does not exist any more.
func (d *device) last() time.Time { return d.entries[len(d.entries)-1].Time }

// changes describes what happened between two states. Before is nil if the device is new.
func changes(before, after *facts) []string {
	var texts []string
	if before == nil {
		texts, before = append(texts, "found"), &facts{}
	}
	for _, node := range after.nodes {
		if !slices.Contains(before.nodes, node) {
			texts = append(texts, node+" sees it")
		}
	}
	for _, node := range before.nodes {
		if !slices.Contains(after.nodes, node) {
			texts = append(texts, node+" does not see it any more")
		}
	}
	for _, slot := range slices.Sorted(maps.Keys(before.slots)) {
		if after.slots[slot] == "" {
			texts = append(texts, fmt.Sprintf("slot %s is free, %s held it", slot, before.slots[slot]))
		}
	}
	for _, slot := range slices.Sorted(maps.Keys(after.slots)) {
		if after.slots[slot] != before.slots[slot] {
			texts = append(texts, fmt.Sprintf("%s holds slot %s", after.slots[slot], slot))
		}
	}
	if after.state != before.state {
		texts = append(texts, after.state)
	}
	return texts
}

// Of returns the Timeline of a device, which need not exist any more.
func (r *Recorder) Of(namespace, name string) Timeline {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := Timeline{Since: r.since}
	if d := r.devices[key(namespace, name)]; d != nil {
		t.Entries = slices.Clone(d.entries)
		slices.Reverse(t.Entries)
	}
	return t
}
