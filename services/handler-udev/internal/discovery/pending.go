package discovery

import (
	"maps"
	"path"
	"strings"
	"sync"
	"time"

	"akri.sh/libs/broadcast"
)

const (
	// removalDelay is how long sysfs may still show a device after the uevent of its removal.
	removalDelay = 250 * time.Millisecond
	// maxChanges limits the changes that are pending. Beyond it, all devices are listed.
	maxChanges = 256
)

// pending collects changes until they are taken, so that a flood of events causes a bounded number
// of listings.
type pending struct {
	ready broadcast.Signal

	mu      sync.Mutex
	changes map[string]bool // by devpath, "" for all; true: the last event is a removal
	delayed map[string]*time.Timer
}

func newPending() *pending {
	return &pending{ready: broadcast.NewSignal(), changes: map[string]bool{}, delayed: map[string]*time.Timer{}}
}

// add adds a change of a device. It ignores drivers, modules and other kernel objects.
func (p *pending) add(devpath string, removed bool) {
	if !strings.HasPrefix(devpath, "/devices/") || path.Clean(devpath) != devpath {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.ready.Notify()
	if _, all := p.changes[""]; all {
		return
	}
	if len(p.changes) >= maxChanges {
		p.changes = map[string]bool{"": false}
		return
	}
	p.changes[devpath] = removed
}

// addDelayed adds a change of a removed device when sysfs no longer shows it. Only the last removal
// of a device counts: after an earlier one, the device may be back and about to be removed again.
func (p *pending) addDelayed(devpath string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if timer := p.delayed[devpath]; timer != nil {
		timer.Reset(removalDelay)
		return
	}
	p.delayed[devpath] = time.AfterFunc(removalDelay, func() {
		p.mu.Lock()
		delete(p.delayed, devpath)
		p.mu.Unlock()
		p.add(devpath, false)
	})
}

// addAll adds a change of all devices. It replaces the other changes.
func (p *pending) addAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changes = map[string]bool{"": false}
	p.ready.Notify()
}

// take removes and returns the changes, without those that a change of an ancestor covers.
func (p *pending) take() map[string]bool {
	p.mu.Lock()
	changes := p.changes
	p.changes = map[string]bool{}
	p.mu.Unlock()
	maps.DeleteFunc(changes, func(devpath string, _ bool) bool { return covered(changes, devpath) })
	return changes
}

// covered reports whether a change of an ancestor includes this one. Listing the ancestor does not
// include a removal, because sysfs may still show the device.
func covered(changes map[string]bool, devpath string) bool {
	for ancestor, removed := range changes {
		if ancestor != devpath && removed == changes[devpath] && Within(ancestor, devpath) {
			return true
		}
	}
	return false
}
