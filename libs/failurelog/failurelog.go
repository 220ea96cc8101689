// Package failurelog logs a failure of a repeated operation once, after it has lasted for 20
// seconds, and logs its end.
package failurelog

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// threshold is longer than the restart of a service or of the kubelet.
const threshold = 20 * time.Second

// Log records the results of one operation.
type Log struct {
	log                *zap.Logger
	failing, recovered string

	mu     sync.Mutex
	since  time.Time // when the first of the consecutive failures was recorded; zero after a success
	logged bool
}

// New returns a Log that writes the message failing as a warning and the message recovered as
// information.
func New(log *zap.Logger, failing, recovered string) *Log {
	return &Log{log: log, failing: failing, recovered: recovered}
}

// Record takes the result of an attempt. A nil error is a success.
func (l *Log) Record(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	switch {
	case err == nil:
		if l.logged {
			l.log.Info(l.recovered)
		}
		l.since, l.logged = time.Time{}, false
	case l.since.IsZero():
		l.since = now
	case !l.logged && now.Sub(l.since) >= threshold:
		l.logged = true
		l.log.Warn(l.failing, zap.Duration("for", now.Sub(l.since).Round(time.Second)), zap.Error(err))
	}
}
