package console

import (
	"bytes"
	"crypto/sha256"
	"net/http"
	"time"
)

const (
	// minInterval is the time between two updates of a page.
	minInterval = 300 * time.Millisecond
	// keepAlive is the time after which a stream without updates gets a comment, so that proxies
	// keep it open.
	keepAlive = 15 * time.Second
	// writeTimeout ends the stream of a browser that does not read.
	writeTimeout = 10 * time.Second
)

// stream sends the live part of a page, and again after each change of it, until the browser closes
// the stream.
func (c *console) stream(w http.ResponseWriter, r *http.Request, render func() ([]byte, error)) {
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
	for {
		changed := c.source.Changed()
		live, err := render()
		if err != nil {
			return
		}
		if sum := sha256.Sum256(live); sum != last {
			last = sum
			if write(w, event(live)) != nil {
				return
			}
		}
		if !wait(w, r, changed) {
			return
		}
	}
}

// wait returns after a change, or false if the stream has ended.
func wait(w http.ResponseWriter, r *http.Request, changed <-chan struct{}) bool {
	pause := time.NewTimer(minInterval)
	defer pause.Stop()
	select {
	case <-r.Context().Done():
		return false
	case <-pause.C:
	}
	idle := time.NewTicker(keepAlive)
	defer idle.Stop()
	for {
		select {
		case <-r.Context().Done():
			return false
		case <-changed:
			return true
		case <-idle.C:
			if write(w, []byte(":\n\n")) != nil {
				return false
			}
		}
	}
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
	return controller.Flush()
}
