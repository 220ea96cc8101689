// Package inventory keeps every Configuration's selection of the kernel's devices true, with one look at the devices for
// all of them.
package inventory

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"akri.sh/libs/handler"
	"akri.sh/services/handler-udev/internal/selection"
)

// Database tells which devices the kernel has now.
type Database interface {
	// Devices lists those at and below a devpath, or all for "". The devices are for one goroutine; each reads what it
	// is asked once.
	Devices(below string) ([]selection.Device, error)
}

// Inventory answers Discover calls. Change tells it what happened, Resync looks at everything.
type Inventory struct {
	database Database
	metrics  *Metrics
	log      *zap.Logger
	pending  *pending

	mu       sync.Mutex
	watchers map[*watcher]struct{}
}

// watcher is one Discover call.
type watcher struct {
	set     *selection.Set
	changed chan struct{} // capacity 1
}

// New returns an Inventory that nobody watches yet.
func New(database Database, metrics *Metrics, log *zap.Logger) *Inventory {
	return &Inventory{
		database: database, metrics: metrics, log: log,
		pending: newPending(), watchers: map[*watcher]struct{}{},
	}
}

// Discover implements handler.Watch.
func (i *Inventory) Discover(ctx context.Context, request handler.Request, send handler.Send) error {
	spec, err := selection.Parse(request)
	if err != nil {
		return err
	}
	w := &watcher{set: selection.NewSet(spec), changed: make(chan struct{}, 1)}
	defer i.remove(w)
	if err := i.add(w); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.changed:
			if err := send(i.devices(w)); err != nil {
				return err
			}
		}
	}
}

// add looks before anything else can change, so that no event falls between the look and the first event.
func (i *Inventory) add(w *watcher) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	devices, err := i.database.Devices("")
	if err != nil {
		return err
	}
	w.set.Refresh("", devices)
	i.watchers[w] = struct{}{}
	notify(w.changed)
	return nil
}

func (i *Inventory) remove(w *watcher) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.watchers, w)
}

func (i *Inventory) devices(w *watcher) []*handler.Device {
	i.mu.Lock()
	defer i.mu.Unlock()
	return w.set.Devices()
}

// Run applies changes until ctx ends, and looks at everything once in each interval: what no event told of is seen then.
func (i *Inventory) Run(ctx context.Context, resync time.Duration) error {
	ticker := time.NewTicker(resync)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			i.pending.all()
		case <-i.pending.some:
			i.apply(i.pending.take())
		}
	}
}

// Changed says that the device at a devpath is new or different.
func (i *Inventory) Changed(devpath string) { i.pending.add(devpath, false) }

// Gone says that the device at a devpath was removed. The kernel says so while the device can still be seen for a
// moment, so it is not looked at now. Another event may have shown it in that moment: it is looked at a little later.
func (i *Inventory) Gone(devpath string) {
	i.pending.add(devpath, true)
	i.pending.later(devpath)
}

// Resync says that anything may have changed.
func (i *Inventory) Resync() { i.pending.all() }

// apply brings all watchers up to date. Without watchers there is nothing to know.
func (i *Inventory) apply(changes map[string]bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.watchers) == 0 {
		return
	}
	for devpath, gone := range changes {
		if !gone {
			i.refresh(devpath)
		}
	}
	// After the looks, which may have shown what was about to go.
	for devpath, gone := range changes {
		if gone {
			i.drop(devpath)
		}
	}
	for w := range i.watchers {
		notify(w.changed)
	}
}

func (i *Inventory) drop(devpath string) {
	for w := range i.watchers {
		w.set.Drop(devpath)
	}
}

func (i *Inventory) refresh(devpath string) {
	began := time.Now()
	devices, err := i.database.Devices(devpath)
	if err != nil {
		i.log.Warn("look at devices; the last list stays", zap.String("devpath", devpath), zap.Error(err))
		return
	}
	for w := range i.watchers {
		w.set.Refresh(devpath, devices)
	}
	i.metrics.observe(devpath, time.Since(began))
}

func notify(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}
