package inventory

import (
	"path"
	"strings"
	"sync"
	"time"

	"akri.sh/services/handler-udev/internal/selection"
)

// afterglow is for how long a removed device may still be seen.
const afterglow = 250 * time.Millisecond

// most is how many changed devices are remembered one by one; beyond that everything is looked at.
const most = 256

// pending collects changes until they are taken, so that a flood of events costs a bounded number of looks.
type pending struct {
	some chan struct{} // capacity 1: there are changes

	mu      sync.Mutex
	changes map[string]bool // devpath, and whether the last news is that it is gone
	fading  map[string]*time.Timer
}

func newPending() *pending {
	return &pending{some: make(chan struct{}, 1), changes: map[string]bool{}, fading: map[string]*time.Timer{}}
}

func (p *pending) add(devpath string, gone bool) {
	if !strings.HasPrefix(devpath, "/devices/") || path.Clean(devpath) != devpath {
		return // drivers, modules and the like are no devices
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	defer notify(p.some)
	if _, all := p.changes[""]; all {
		return
	}
	if len(p.changes) >= most {
		p.changes = map[string]bool{"": false}
		return
	}
	p.changes[devpath] = gone
}

// later adds a change of a device once it can be seen no more. Only its last removal counts: after a former one it may be back, and the
// look might fall into the moment in which it goes again.
func (p *pending) later(devpath string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if timer := p.fading[devpath]; timer != nil {
		timer.Reset(afterglow)
		return
	}
	p.fading[devpath] = time.AfterFunc(afterglow, func() {
		p.mu.Lock()
		delete(p.fading, devpath)
		p.mu.Unlock()
		p.add(devpath, false)
	})
}

func (p *pending) all() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.changes = map[string]bool{"": false}
	notify(p.some)
}

// take returns the changes so far, without those below another one that is looked at anyway.
func (p *pending) take() map[string]bool {
	p.mu.Lock()
	changes := p.changes
	p.changes = map[string]bool{}
	p.mu.Unlock()
	for devpath := range changes {
		if p.covered(changes, devpath) {
			delete(changes, devpath)
		}
	}
	return changes
}

// covered tells whether an ancestor's change includes this one. A look at the ancestor does not include that a device
// is gone: it may still be seen.
func (p *pending) covered(changes map[string]bool, devpath string) bool {
	for above, aboveGone := range changes {
		if above != devpath && aboveGone == changes[devpath] && selection.Within(above, devpath) {
			return true
		}
	}
	return false
}
