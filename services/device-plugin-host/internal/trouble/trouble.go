// Package trouble tells of what is tried again and again, and fails, once it has for a while: a neighbour that restarts
// is no news, one that stays away is.
package trouble

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// patience is how long attempts fail before the log tells of it.
const patience = 20 * time.Second

// Trouble watches attempts of one kind.
type Trouble struct {
	mu    sync.Mutex
	since time.Time // of the first of the failures in a row; zero: the last one did not fail
	told  bool
}

// Note takes how an attempt ended: `what` is what failed ones have in common, as a sentence.
func (t *Trouble) Note(log *zap.Logger, what string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	switch {
	case err == nil && t.told:
		log.Info("no longer: " + what)
		fallthrough
	case err == nil:
		t.since, t.told = time.Time{}, false
	case t.since.IsZero():
		t.since = now
	case !t.told && now.Sub(t.since) >= patience:
		t.told = true
		log.Warn(what, zap.Duration("for", now.Sub(t.since).Round(time.Second)), zap.Error(err))
	}
}
