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
	// maxChanges limits the queue. Beyond it, all devices are listed.
	maxChanges = 256
)

// queue collects changes until they are taken, so that a flood of events causes a bounded number of
// listings.
type queue struct {
	ready broadcast.Signal

	mu      sync.Mutex
	changes map[string]bool // by devpath, "" for all; true: the last event is a removal
	delayed map[string]*time.Timer
}

func newQueue() *queue {
	return &queue{ready: broadcast.NewSignal(), changes: map[string]bool{}, delayed: map[string]*time.Timer{}}
}

// add adds a change of a device. It ignores drivers, modules and other kernel objects.
func (q *queue) add(devpath string, removed bool) {
	if !strings.HasPrefix(devpath, "/devices/") || path.Clean(devpath) != devpath {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	defer q.ready.Notify()
	if _, all := q.changes[""]; all {
		return
	}
	if len(q.changes) >= maxChanges {
		q.changes = map[string]bool{"": false}
		return
	}
	q.changes[devpath] = removed
}

// addDelayed adds a change of a removed device when sysfs no longer shows it. Only the last removal
// of a device counts: after an earlier one, the device may be back and about to be removed again.
func (q *queue) addDelayed(devpath string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if timer := q.delayed[devpath]; timer != nil {
		timer.Reset(removalDelay)
		return
	}
	q.delayed[devpath] = time.AfterFunc(removalDelay, func() {
		q.mu.Lock()
		delete(q.delayed, devpath)
		q.mu.Unlock()
		q.add(devpath, false)
	})
}

// addAll adds a change of all devices. It replaces the other changes.
func (q *queue) addAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.changes = map[string]bool{"": false}
	q.ready.Notify()
}

// take removes and returns the changes, without those that a change of an ancestor covers.
func (q *queue) take() map[string]bool {
	q.mu.Lock()
	changes := q.changes
	q.changes = map[string]bool{}
	q.mu.Unlock()
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
