package console

import (
	"bytes"
	"crypto/sha256"
	"net/http"
	"time"
)

const (
	// minInterval is the time between two updates of a page. It is longer for a page that takes
	// long: busyShare times as long as its last update took.
	minInterval = 100 * time.Millisecond
	busyShare   = 10
	// keepAlive is the time after which a stream without updates gets a comment, so that proxies
	// keep it open, and the viewer must still be admitted.
	keepAlive = 15 * time.Second
	// writeTimeout ends the stream of a browser that does not read.
	writeTimeout = 10 * time.Second
)

// reload makes the browser load the page again. It is not an error of HTTP, which scripts cannot
// read and browsers report.
const reload = "event: reload\ndata:\n\n"

// stream sends the live part of a page, and again after each change of it, until the browser closes
// the stream or the viewer is refused.
func (c *console) stream(w http.ResponseWriter, r *http.Request, render func(Viewer) ([]byte, error)) {
	select {
	case c.streams <- struct{}{}:
		defer func() { <-c.streams }()
	default:
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx forwards at once
	var last [sha256.Size]byte
	var written time.Time
	for {
		viewer, refusal := c.admit(r)
		if refusal != nil {
			_ = write(w, []byte(reload))
			return
		}
		changed, begin := viewer.Changed(), time.Now()
		live, err := render(viewer)
		took := time.Since(begin)
		if err != nil {
			return
		}
		var message []byte
		if sum := sha256.Sum256(live); sum != last {
			last, message = sum, event(live)
		} else if time.Since(written) >= keepAlive {
			message = []byte(":\n\n")
		}
		if message != nil {
			if write(w, message) != nil {
				return
			}
			written = time.Now()
		}
		if !wait(r, max(minInterval, busyShare*took), changed) {
			return
		}
	}
}

// wait returns after an interval and a change, or after some time without one. It returns false if
// the stream has ended.
func wait(r *http.Request, interval time.Duration, changed <-chan struct{}) bool {
	idle := time.NewTimer(keepAlive)
	defer idle.Stop()
	pause := time.NewTimer(interval)
	defer pause.Stop()
	select {
	case <-r.Context().Done():
		return false
	case <-pause.C:
	}
	select {
	case <-r.Context().Done():
		return false
	case <-changed:
	case <-idle.C:
	}
	return true
}

// event returns the text as a server-sent event. Each line has a prefix.
func event(text []byte) []byte {
	return append(append([]byte("data: "), bytes.ReplaceAll(bytes.TrimSpace(text), []byte("\n"), []byte("\ndata: "))...), "\n\n"...)
}

func write(w http.ResponseWriter, data []byte) error {
	controller := http.NewResponseController(w)
	if err := controller.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	if _, err := w.Write(data); err != nil {
		return err
	}
	if err := controller.Flush(); err != nil {
		return err
	}
	// HTTP/2 would end a stream that has nothing to write at the deadline.
	return controller.SetWriteDeadline(time.Time{})
}
