package discovery_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"akri.sh/libs/handler"
	"akri.sh/services/handler-udev/internal/discovery"
)

const (
	// udevTimeout is how long a device may wait for udevd, and examined the time until the handler
	// examines it again.
	udevTimeout = 10 * time.Second
	examined    = 250 * time.Millisecond

	walks = 300
	steps = 150
)

// The kinds of devices for which udevd differs.
const (
	withNumber = iota
	withoutEntry
	withoutNumber
	networkInterface
	kinds
)

// plugged is a device of a walk.
type plugged struct {
	serial string // an attribute, and a property of udevd
	kind   int
	path   string
	id     string    // in the database of udevd
	at     time.Time // when it was plugged in
	// reported is when the handler received the event of the kernel for the path.
	reported time.Time

	present bool
	misled  bool   // udevd had an entry of another device for it
	listed  bool   // in the last list
	late    bool   // it was listed without udevd
	name    string // the id under which it was listed
}

// entry is what udevd has stored of a device.
type entry struct {
	at     time.Time
	serial string
	// abandoned means that udevd has lost the event of the removal.
	abandoned bool
}

// udevEvent is an event of the kernel that udevd has not processed.
type udevEvent struct {
	action string
	device *plugged
}

// world is a machine with udevd and a handler. Events wait until they are received: those of the
// kernel by the handler and by udevd in their order, those of the database at any time.
type world struct {
	t       *testing.T
	random  *rand.Rand
	kernel  *fakeKernel
	devices []*plugged

	database map[string]entry
	queue    []udevEvent
	events   []func()
	changes  []*plugged

	inventory *discovery.Inventory
	stop      func()
	started   time.Time

	// A timer can send a list between two calls of synctest.Wait.
	mu    sync.Mutex
	sent  []*handler.Device
	lists int
}

func (w *world) send(devices []*handler.Device) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.sent = devices
	w.lists++
	return nil
}

// last returns the last list, and how many the handler has sent.
func (w *world) last() ([]*handler.Device, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent, w.lists
}

// TestWalk plugs devices in and out in any order, with events that udevd or the handler receives
// late or not at all, and restarts of the handler. A device is listed with all properties of udevd,
// under one id, until it is unplugged. Only if udevd has not processed it in time, it is listed
// without them.
func TestWalk(t *testing.T) {
	for seed := range uint64(walks) {
		t.Run(fmt.Sprint("seed", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{t: t, random: rand.New(rand.NewPCG(seed, 0)), kernel: newFakeKernel(), database: map[string]entry{}}
				w.kernel.setUdevd(true, false)
				w.start()
				for range steps {
					w.step()
					synctest.Wait()
					w.check()
				}
				w.stop()
			})
		})
	}
}

func (w *world) step() {
	port := w.random.IntN(4)
	device := w.inPort(port)
	switch action := w.random.IntN(22); {
	case action < 4 && device == nil:
		w.plug(port)
	case action < 3:
		w.unplug(device)
	case action < 8 && len(w.queue) > 0:
		w.processEvent(w.random.IntN(8) == 0)
	case action < 13 && len(w.events) > 0:
		w.events[0]()
		w.events = w.events[1:]
	case action < 15 && len(w.changes) > 0:
		w.receiveChange(w.random.IntN(len(w.changes)))
	case action == 15:
		w.changes = nil // lost
	case action == 16 && device != nil:
		w.queue = append(w.queue, udevEvent{"change", device})
		w.events = append(w.events, func() { w.inventory.Changed(device.path) })
	case action == 17 && w.random.IntN(3) == 0:
		w.stop()
		w.start()
	case action == 18 && w.random.IntN(3) == 0:
		w.loseEvents()
	default:
		<-time.After(time.Duration(w.random.IntN(3000)) * time.Millisecond)
	}
	w.kernel.setUdevd(true, len(w.queue) > 0)
}

func (w *world) find(condition func(*plugged) bool) *plugged {
	for _, d := range w.devices {
		if d.present && condition(d) {
			return d
		}
	}
	return nil
}

func (w *world) bySerial(serial string) *plugged {
	return w.devices[slices.IndexFunc(w.devices, func(d *plugged) bool { return d.serial == serial })]
}

func (w *world) inPort(port int) *plugged {
	return w.find(func(d *plugged) bool { return strings.HasPrefix(d.path, fmt.Sprintf("/devices/port%d/", port)) })
}

// plug plugs a device in. It gets the lowest free number, which an unplugged device may have had.
// The handler has received the event of that device: receiving takes less time than plugging.
func (w *world) plug(port int) {
	for _, receive := range w.events {
		receive()
		synctest.Wait()
	}
	w.events = nil
	d := &plugged{serial: fmt.Sprint("serial", len(w.devices)), kind: w.random.IntN(kinds), at: time.Now(), present: true}
	switch d.kind {
	case withNumber:
		number := 0
		for w.find(func(d *plugged) bool { return d.id == fmt.Sprint("c188:", number) }) != nil {
			number++
		}
		d.id, d.path = fmt.Sprint("c188:", number), fmt.Sprintf("/devices/port%d/disk%d", port, number)
	case withoutEntry, withoutNumber:
		d.id, d.path = fmt.Sprint("+usb:", port), fmt.Sprintf("/devices/port%d/disk", port)
	case networkInterface:
		d.id, d.path = fmt.Sprint("n", len(w.devices)), fmt.Sprintf("/devices/port%d/net/disketh0", port)
	}
	d.misled = w.database[d.id].abandoned
	w.devices = append(w.devices, d)
	path := d.path
	w.kernel.plug(fakeDevice{
		Path: path, EntryName: d.id, Attributes: map[string]string{"serial": d.serial}, Unstored: d.kind == withoutEntry || d.kind == withoutNumber,
	})
	w.show(d.id)
	w.queue = append(w.queue, udevEvent{"add", d})
	w.events = append(w.events, func() { d.reported = time.Now(); w.inventory.Changed(path) })
	<-time.After(time.Millisecond)
}

func (w *world) unplug(d *plugged) {
	<-time.After(time.Millisecond)
	d.present = false
	w.kernel.unplug(d.path)
	w.queue = append(w.queue, udevEvent{"remove", d})
	at := time.Now()
	w.events = append(w.events, func() { w.inventory.Removed(d.path, d.id, at) })
}

// processEvent lets udevd process its next event, or lose it.
func (w *world) processEvent(lose bool) {
	next := w.queue[0]
	w.queue = w.queue[1:]
	d := next.device
	switch {
	case lose && next.action == "remove":
		if stored, exists := w.database[d.id]; exists {
			stored.abandoned = true
			w.database[d.id] = stored
		}
		if other := w.find(func(other *plugged) bool { return other.id == d.id }); other != nil {
			other.misled = true
		}
	case lose && d.kind == withoutNumber:
		d.kind = withoutEntry // it looks the same
	case lose:
	case next.action == "remove":
		if _, exists := w.database[d.id]; exists {
			w.inventory.Deleted(d.id)
		}
		delete(w.database, d.id)
		w.show(d.id)
	case !d.present && d.kind == withNumber: // udevd adds an entry anyway
		w.store(d)
	case d.present && d.kind != withoutEntry:
		w.rename(d)
		w.store(d)
	}
}

// rename renames a network interface, which is an event of the kernel.
func (w *world) rename(d *plugged) {
	before := d.path
	d.path = strings.Replace(before, "disketh0", "diskwan0", 1)
	if before == d.path {
		return
	}
	w.kernel.rename(before, d.path)
	d.reported = time.Time{}
	w.events = append(w.events, func() {
		d.reported = time.Now()
		w.inventory.Changed(d.path)
		w.inventory.Changed(before)
	})
}

// store writes the entry of a device. An entry keeps its time.
func (w *world) store(d *plugged) {
	stored, exists := w.database[d.id]
	if !exists {
		stored.at = time.Now()
	}
	stored.serial, stored.abandoned = d.serial, false
	w.database[d.id] = stored
	w.show(d.id)
	w.changes = append(w.changes, d)
}

// show makes libudev see an entry: it belongs to the device that has the number now.
func (w *world) show(id string) {
	d := w.find(func(d *plugged) bool { return d.id == id })
	if d == nil {
		return
	}
	properties := map[string]string{}
	stored, exists := w.database[id]
	if exists {
		properties["SERIAL"] = stored.serial
	}
	w.kernel.initialize(d.path, stored.at, properties)
}

// receiveChange lets the handler receive a change of the database. A device that udevd has
// initialized is then listed, unless the handler waits for further events of udevd.
func (w *world) receiveChange(n int) {
	d := w.changes[n]
	w.changes = slices.Delete(w.changes, n, n+1)
	w.inventory.Changed(d.path)
	synctest.Wait()
	stored := w.database[d.id]
	sent, lists := w.last()
	if d.present && stored.serial == d.serial && !stored.at.Before(d.at) && len(w.queue) == 0 && lists > 0 {
		require.True(w.t, slices.ContainsFunc(sent, func(device *handler.Device) bool {
			return device.GetProperties()["TRUE"] == d.serial
		}), "%s is not listed", d.path)
	}
}

// loseEvents drops the events of the kernel that the handler has not received.
func (w *world) loseEvents() {
	w.events = nil
	for _, d := range w.devices {
		if d.reported.IsZero() {
			d.reported = time.Now()
		}
	}
	w.inventory.Resync()
}

// start starts the handler, which lists the devices that exist.
func (w *world) start() {
	w.events, w.changes, w.sent, w.lists = nil, nil, nil, 0 // the handler does not run
	w.started = time.Now()
	for _, d := range w.devices {
		d.reported = time.Now()
	}
	w.inventory = discovery.NewInventory(w.kernel, func(string, int, time.Duration) {}, func() {}, zap.NewNop())
	ctx, cancel := context.WithCancel(w.t.Context())
	w.stop = func() { cancel(); synctest.Wait() }
	go func() { _ = w.inventory.Run(ctx, resync) }()
	go func() {
		_ = w.inventory.Discover(ctx, handler.Request{
			Details: `{udevRules: ['KERNEL=="disk*"'], properties: {TRUE: "ATTR{serial}", SERIAL: "ENV{SERIAL}"}}`,
		}, w.send)
	}()
}

// check checks the last list. Until the handler has sent its first list, that of the previous
// handler counts.
func (w *world) check() {
	w.t.Helper()
	sent, lists := w.last()
	if lists == 0 {
		require.Less(w.t, time.Since(w.started), 15*time.Second, "no list")
		return
	}
	listed := map[string]*handler.Device{}
	for _, device := range sent {
		serial := device.GetProperties()["TRUE"]
		if first := listed[serial]; first != nil {
			require.True(w.t, w.bySerial(serial).late, "listed twice: %s and %s", first.GetId(), device.GetId())
		}
		listed[serial] = device
	}
	for _, d := range w.devices {
		if device := listed[d.serial]; device != nil {
			w.checkListed(d, device)
		} else {
			w.checkMissing(d)
		}
		d.listed = listed[d.serial] != nil
	}
}

func (w *world) checkListed(d *plugged, device *handler.Device) {
	w.t.Helper()
	known := d.at
	if w.started.After(known) {
		known = w.started
	}
	late := time.Since(known) >= udevTimeout
	d.late = d.late || !d.listed && late
	if !late && d.kind != withoutEntry && !d.misled {
		require.Equal(w.t, d.serial, device.GetProperties()["SERIAL"], "%s has a part of its properties", device.GetId())
	}
	if d.name == "" || d.late {
		d.name = device.GetId()
	}
	require.Equal(w.t, d.name, device.GetId(), "listed again under another id")
}

// checkMissing checks that a device that is not listed was not listed before, and that it does not
// wait too long.
func (w *world) checkMissing(d *plugged) {
	w.t.Helper()
	if !d.present {
		return
	}
	require.True(w.t, !d.listed || d.late, "%s was listed before", d.path)
	if !d.reported.IsZero() {
		require.LessOrEqual(w.t, time.Since(d.reported), udevTimeout+examined, "%s waits too long", d.path)
	}
}
