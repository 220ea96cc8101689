// Package discovery selects the devices of Configurations by udev rules and keeps the selections up
// to date. Specs and Sets are pure; an Inventory lists devices once for all Configurations.
package discovery

import (
	"context"
	"maps"
	"path"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/details/udev/rules"
	"akri.sh/libs/handler"
)

// Database lists the current devices of the kernel.
type Database interface {
	// Devices lists the devices at and below a devpath, or all devices for "". Each device is used
	// by one goroutine and reads a value only once.
	Devices(top string) ([]rules.Device, error)
	// Udevd reports whether udevd runs on the node, and whether it has events to process.
	Udevd() (running, busy bool)
}

// Inventory serves Discover calls. Changed, Removed, Deleted and Resync report what happened to
// devices.
type Inventory struct {
	database Database
	observe  Observe
	log      *zap.Logger
	pending  *pending
	waiting  *waiting
	// explaining holds a value while an Explain call compares devices.
	explaining chan struct{}

	mu       sync.Mutex
	watchers map[*watcher]struct{}
}

// watcher is one Discover call.
type watcher struct {
	set     *Set
	changed broadcast.Signal
}

// Observe records a listing of devices at and below a devpath, or of all devices for "".
type Observe func(top string, devices int, took time.Duration)

// NewInventory returns an Inventory without watchers. It calls observe after each listing, and
// timedOut for each device that udevd did not initialize in time.
func NewInventory(database Database, observe Observe, timedOut func(), log *zap.Logger) *Inventory {
	return &Inventory{
		database: database, observe: observe, log: log, pending: newPending(), waiting: newWaiting(database, timedOut, log),
		explaining: make(chan struct{}, 1), watchers: map[*watcher]struct{}{},
	}
}

// Discover implements handler.Handler. A device that is missing in the first list would be removed,
// so this list waits as its devices do.
func (i *Inventory) Discover(ctx context.Context, request handler.Request, send handler.Send) error {
	spec, err := ParseSpec(request)
	if err != nil {
		return err
	}
	w := &watcher{set: NewSet(spec), changed: broadcast.NewSignal()}
	defer i.remove(w)
	if err := i.add(w); err != nil {
		return err
	}
	for first := time.After(firstListTimeout); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-first:
			first = nil
		case <-w.changed:
		}
		devices, complete := i.devices(w, first == nil)
		if !complete {
			continue
		}
		first = nil
		if err := send(devices); err != nil {
			return err
		}
	}
}

// add lists the devices for a new watcher. The lock keeps changes from being applied between the
// listing and the registration.
func (i *Inventory) add(w *watcher) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	began := time.Now()
	devices, err := i.database.Devices("")
	if err != nil {
		return err
	}
	i.update(w, "", devices)
	i.observe("", len(devices), time.Since(began))
	i.watchers[w] = struct{}{}
	w.changed.Notify()
	return nil
}

func (i *Inventory) remove(w *watcher) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.watchers, w)
}

// devices returns the devices of a watcher that do not wait. It returns false if some wait, unless
// the list may be partial.
func (i *Inventory) devices(w *watcher, partial bool) ([]*handler.Device, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !partial && len(w.set.Waiting()) > 0 {
		return nil, false
	}
	return w.set.Devices(), true
}

// Run applies changes until ctx ends. It lists all devices in each resync interval, to find changes
// without an event.
func (i *Inventory) Run(ctx context.Context, resync time.Duration) error {
	ticker := time.NewTicker(resync)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			i.pending.addAll()
		case <-i.pending.ready:
			i.apply(i.pending.take())
		}
	}
}

// Changed reports that the device at a devpath is new or different.
func (i *Inventory) Changed(devpath string) { i.pending.add(devpath, false) }

// Removed reports that the kernel removed a device, whose entry in the database has a name, not
// before a time. Sysfs may still show the device, so it is not listed now. It is listed after a
// delay, because the listing for another event may have shown it in the meantime.
func (i *Inventory) Removed(devpath, entry string, notBefore time.Time) {
	i.waiting.remove(entry, notBefore)
	i.pending.add(devpath, true)
	i.pending.addDelayed(devpath, removalDelay)
}

// Deleted reports that udevd deleted an entry of its database.
func (i *Inventory) Deleted(entry string) { i.waiting.delete(entry) }

// Resync reports that any device may have changed, and that events may have been lost.
func (i *Inventory) Resync() {
	i.waiting.lost()
	i.pending.addAll()
}

// apply updates all watchers. Removals come after the listings, which may still show the removed
// devices.
func (i *Inventory) apply(changes map[string]bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.watchers) == 0 {
		return
	}
	for devpath, removed := range changes {
		if !removed {
			i.refresh(devpath)
		}
	}
	for devpath, removed := range changes {
		if !removed {
			continue
		}
		for w := range i.watchers {
			w.set.Remove(devpath)
		}
		i.waiting.keep(devpath, nil)
	}
	for w := range i.watchers {
		w.changed.Notify()
	}
}

func (i *Inventory) refresh(devpath string) {
	began := time.Now()
	devices, err := i.database.Devices(devpath)
	if err != nil {
		i.log.Warn("listing devices failed; keeping the last list", zap.String("devpath", devpath), zap.Error(err))
		return
	}
	for w := range i.watchers {
		i.update(w, devpath, devices)
	}
	i.waiting.keep(devpath, devices)
	i.observe(devpath, len(devices), time.Since(began))
}

// update applies a listing to a watcher. Devices that wait are listed again after a while.
func (i *Inventory) update(w *watcher, top string, devices []rules.Device) {
	w.set.Refresh(top, devices, i.waiting.contains)
	for _, devpath := range w.set.Waiting() {
		if Within(top, devpath) {
			i.pending.addDelayed(devpath, initializationInterval)
		}
	}
}

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

// addDelayed adds a change of a device after a delay. Only the last call for a device counts: after
// an earlier removal, the device may be back and about to be removed again.
func (p *pending) addDelayed(devpath string, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if timer := p.delayed[devpath]; timer != nil {
		timer.Reset(delay)
		return
	}
	p.delayed[devpath] = time.AfterFunc(delay, func() {
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
