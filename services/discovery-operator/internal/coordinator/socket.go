package coordinator

import (
	"errors"
	"io/fs"
	"os"
	"sync/atomic"
	"time"

	"akri.sh/libs/filewatch"
	"akri.sh/libs/grace"
)

// socket is the file of an endpoint on the node. A handler whose socket was removed still serves
// its open streams, but nothing can connect to it, also not discovery-operator after a restart.
type socket struct {
	path    string
	changed atomic.Bool
	stop    func()
	// missing is nil while the file exists.
	missing *grace.Wait
}

// watchSocket calls notify when the socket may have appeared or disappeared.
func watchSocket(path string, notify func()) *socket {
	s := &socket{path: path}
	s.changed.Store(true)
	s.stop = filewatch.Watch(path, func() {
		s.changed.Store(true)
		notify()
	})
	return s
}

// look updates missing if the file may have changed.
func (s *socket) look(now time.Time, tolerated time.Duration) {
	if !s.changed.Swap(false) {
		return
	}
	_, err := os.Stat(s.path)
	switch {
	case !errors.Is(err, fs.ErrNotExist):
		s.missing = nil
	case s.missing == nil:
		s.missing = &grace.Wait{Awaited: "the socket exists", Since: now, For: tolerated, Then: "the handler is offline"}
	}
}
