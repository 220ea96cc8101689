package video

import (
	"context"
	"errors"
	"time"

	"akri.sh/libs/broadcast"
)

// ErrRestarted is the error of Next once after a session with the camera has failed. The next frame
// is a key frame of a new session, whose times begin again.
var ErrRestarted = errors.New("the session with the camera was restarted")

// Reader reads the frames of a Hub, from the last key frame. A Reader that is slower than the
// camera misses frames up to a key frame; it never delays the camera or other readers.
type Reader struct {
	hub    *Hub
	added  broadcast.Signal
	frames []*Frame // guarded by the hub's mutex
	bytes  int
	// waiting is set until a key frame.
	waiting   bool
	restarted bool
}

// Read returns a new Reader. The caller closes it.
func (h *Hub) Read() *Reader {
	reader := &Reader{hub: h, added: broadcast.NewSignal(), waiting: true}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, frame := range h.group {
		reader.add(frame)
	}
	h.readers[reader] = true
	h.changed.Notify()
	return reader
}

// Close ends reading.
func (r *Reader) Close() {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	delete(r.hub.readers, r)
	if len(r.hub.readers) == 0 {
		r.hub.unused = time.Now()
	}
	r.hub.changed.Notify()
}

// Next returns the next frame. It waits for one until ctx ends.
func (r *Reader) Next(ctx context.Context) (*Frame, error) {
	for {
		if frame, err := r.take(); frame != nil || err != nil {
			return frame, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-r.added:
		}
	}
}

func (r *Reader) take() (*Frame, error) {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	if r.restarted {
		r.restarted = false
		return nil, ErrRestarted
	}
	if len(r.frames) == 0 {
		return nil, nil
	}
	frame := r.frames[0]
	r.frames, r.bytes = r.frames[1:], r.bytes-frame.size
	return frame, nil
}

// Empty returns whether Next would wait.
func (r *Reader) Empty() bool {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	return len(r.frames) == 0 && !r.restarted
}

// Added receives after frames were added.
func (r *Reader) Added() <-chan struct{} { return r.added }

// add is called with the hub's mutex.
func (r *Reader) add(frame *Frame) {
	switch {
	case r.waiting && !frame.Key:
		r.hub.observe(FrameDropped)
		return
	case frame.Key && frame.Codec == JPEG:
		r.drop() // images are complete, so only the latest one matters
	case r.bytes+frame.size > maxPending || len(r.frames) >= maxFrames:
		r.drop()
		r.waiting = !frame.Key
		if r.waiting {
			r.hub.observe(FrameDropped)
			return
		}
	}
	r.waiting = false
	r.frames, r.bytes = append(r.frames, frame), r.bytes+frame.size
	r.added.Notify()
}

func (r *Reader) drop() {
	for range r.frames {
		r.hub.observe(FrameDropped)
	}
	r.frames, r.bytes = nil, 0
}

// restart is called with the hub's mutex.
func (r *Reader) restart() {
	r.frames, r.bytes, r.waiting, r.restarted = nil, 0, true, true
	r.added.Notify()
}
