package discovery

import (
	"maps"
	"sync"
	"time"

	"go.uber.org/zap"

	"akri.sh/libs/details/udev/rules"
)

const (
	// initializationTimeout limits how long a device waits for udevd.
	initializationTimeout = 10 * time.Second
	// firstListTimeout limits how long the first list of a Discover call waits for its devices if
	// further ones are plugged in meanwhile. It must be sent within 15 seconds.
	firstListTimeout = initializationTimeout + 2*time.Second
	// settleTime is how long a device without an entry waits if udevd may never add one. Then it
	// waits for udevd to be idle.
	settleTime = time.Second
	// initializationInterval is the time after which a device that waits is examined again, for
	// changes of the database without an event.
	initializationInterval = 250 * time.Millisecond
)

// waiting decides which devices wait for udevd. The lock of the Inventory protects devices. The
// kernel reports a device before udevd has examined it, renamed it or changed its owner, so that a
// device that was listed at once would have a part of its properties. On a node without udevd no
// device waits.
type waiting struct {
	database Database
	timedOut func()
	log      *zap.Logger
	devices  map[string]wait // by devpath

	mu      sync.Mutex
	removed map[string]removal // by entry
	// unsure means that entries may be those of removed devices, because not all removals are known
	// that udevd has not processed.
	unsure bool
}

// wait is a device that matches a rule and that udevd had not initialized when it was examined.
type wait struct {
	inode   uint64
	since   time.Time
	expired bool
}

// removal is the last removal of a device with an entry. udevd deletes the entry some time later.
// Another device that is plugged in meanwhile can have the same device number and thus the entry of
// the removed device.
type removal struct {
	// at is a time before the removal. Older entries are those of the removed device.
	at time.Time
	// expected is the number of deletions of the entry that udevd has not done yet. Until then,
	// newer entries can be those of the removed device, too: udevd also adds an entry for a device
	// that was removed before udevd has examined it.
	expected int
}

func newWaiting(database Database, timedOut func(), log *zap.Logger) *waiting {
	return &waiting{
		database: database, timedOut: timedOut, log: log,
		devices: map[string]wait{}, removed: map[string]removal{}, unsure: true,
	}
}

// lost records that removals may be unknown, until udevd has no events.
func (w *waiting) lost() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unsure = true
}

// remove records that the kernel has removed the device with an entry, not before a time.
func (w *waiting) remove(entry string, notBefore time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.removed) >= maxChanges {
		maps.DeleteFunc(w.removed, func(_ string, r removal) bool { return time.Since(r.at) > initializationTimeout })
	}
	if len(w.removed) >= maxChanges {
		w.unsure = true
		return
	}
	w.removed[entry] = removal{at: notBefore, expected: w.removed[entry].expected + 1}
}

// delete records that udevd has deleted an entry.
func (w *waiting) delete(entry string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.removed[entry]; r.expected > 0 {
		r.expected--
		w.removed[entry] = r
	}
}

// isOwn reports whether an entry that was added at a time is that of the device that has it now. If
// udevd has no events, it has processed all removals.
func (w *waiting) isOwn(entry string, at time.Time, busy bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !busy {
		w.unsure = false
		for name, r := range w.removed {
			w.removed[name] = removal{at: r.at}
		}
	}
	r := w.removed[entry]
	return !w.unsure && r.expected == 0 && (at.IsZero() || !at.Before(r.at))
}

// contains reports whether the device must not be listed yet.
func (w *waiting) contains(device rules.Device) bool {
	running, busy := w.database.Udevd()
	if !running {
		return false
	}
	at, initialized := device.Initialized()
	if initialized && w.isOwn(device.Entry(), at, busy) {
		delete(w.devices, device.Devpath())
		return false
	}

	current := w.start(device)
	waited := time.Since(current.since)
	// udevd stores nothing of a device that has no number and no properties of udevd.
	if !initialized && !device.Stored() && !busy && waited >= settleTime {
		return false
	}
	if waited < initializationTimeout {
		return true
	}
	w.expire(device, current)
	return false
}

// start returns since when the device waits.
func (w *waiting) start(device rules.Device) wait {
	current, exists := w.devices[device.Devpath()]
	if inode := device.Inode(); !exists || current.inode != inode {
		current = wait{inode: inode, since: time.Now()}
		w.devices[device.Devpath()] = current
	}
	return current
}

// expire reports once that udevd has not initialized the device.
func (w *waiting) expire(device rules.Device, current wait) {
	if current.expired {
		return
	}
	current.expired = true
	w.devices[device.Devpath()] = current
	w.timedOut()
	w.log.Warn("udevd did not initialize a device in time; it is listed without properties of udev; check that systemd-udevd works on the node",
		zap.String("devpath", device.Devpath()), zap.Duration("timeout", initializationTimeout))
}

// keep removes all devices at and below a devpath except those that exist.
func (w *waiting) keep(top string, existing []rules.Device) {
	if len(w.devices) == 0 {
		return
	}
	exists := make(map[string]bool, len(existing))
	for _, device := range existing {
		exists[device.Devpath()] = true
	}
	maps.DeleteFunc(w.devices, func(devpath string, _ wait) bool { return Within(top, devpath) && !exists[devpath] })
}
