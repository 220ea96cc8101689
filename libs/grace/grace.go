// Package grace has the rule by which Akri tolerates that something is absent, does not respond or
// does not start: it waits for a time, and acts only after that.
//
// No decision compares the clocks of two machines, which can differ. A process counts from when it
// first sees the state, by its own clock. After a restart, and on another replica, the time begins
// again, which can only delay what happens.
package grace

import "time"

// Wait is a state that Akri tolerates for a time.
type Wait struct {
	// Awaited is what ends the state, for example "the Discovery Handler can be reached".
	Awaited string
	// Since is when this process first saw the state.
	Since time.Time
	// For is how long the state is tolerated.
	For time.Duration
	// Then is what happens after that, for example "its devices are removed".
	Then string
}

// Until returns when the wait is over.
func (w Wait) Until() time.Time { return w.Since.Add(w.For) }

// Over reports whether the state has lasted too long.
func (w Wait) Over(now time.Time) bool { return w.Left(now) == 0 }

// Left returns the time until the wait is over, at least 0.
func (w Wait) Left(now time.Time) time.Duration { return max(w.Until().Sub(now), 0) }

// Next is when the first of several waits is over: their states must be checked again.
type Next struct {
	// At is zero without a wait.
	At time.Time
}

// Include makes Next at most the given time. Zero changes nothing.
func (n *Next) Include(at time.Time) {
	if !at.IsZero() && (n.At.IsZero() || at.Before(n.At)) {
		n.At = at
	}
}
