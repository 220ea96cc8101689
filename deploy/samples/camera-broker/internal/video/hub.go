package video

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"akri.sh/libs/broadcast"
)

const (
	// linger is the time for which a session continues without readers, so that a client that asks
	// for single images does not start a session for each.
	linger = 10 * time.Second
	// frameTimeout ends a session. Some cameras need seconds for their first frame.
	frameTimeout = 10 * time.Second
	// minBackoff and maxBackoff limit the time between a session that failed and the next one.
	minBackoff = time.Second
	maxBackoff = 30 * time.Second
	// maxPending limits the bytes of frames that a reader has not read, and of the frames since the
	// last key frame.
	maxPending = 16 << 20
	// maxFrames limits their number.
	maxFrames = 1024
)

// Source is a camera.
type Source interface {
	// Run opens a session with the camera and calls emit with each frame until ctx ends or the
	// session fails.
	Run(ctx context.Context, emit func(*Frame)) error
}

// ErrNoFrame is the health of a camera before its first frame or failure.
var ErrNoFrame = errors.New("no frame yet")

// Hub has at most one session with a camera, however many readers there are, and none without
// readers. It opens a session at its start and after a failure, until a frame arrives, so that
// Health is known without readers.
type Hub struct {
	source  Source
	log     *slog.Logger
	observe func(event Event)
	changed broadcast.Signal // wakes Run

	mu      sync.Mutex
	readers map[*Reader]bool
	// group are the frames since the last key frame. It is empty without a session, and when these
	// frames exceed the limits.
	group   []*Frame
	bytes   int
	unused  time.Time // when the last reader left
	health  error     // nil: the last session sent frames
	arrived time.Time // of the last frame
}

// Event is counted by metrics.
type Event string

// Events.
const (
	SessionStarted Event = "session"
	FrameReceived  Event = "frame"
	FrameDropped   Event = "dropped" // for one reader
)

// NewHub returns a Hub. observe is called with each event.
func NewHub(source Source, log *slog.Logger, observe func(Event)) *Hub {
	return &Hub{
		source: source, log: log, observe: observe, changed: broadcast.NewSignal(),
		readers: map[*Reader]bool{}, health: ErrNoFrame,
	}
}

// Health returns nil, or why the camera sends no frames.
func (h *Hub) Health() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.health
}

// Failure returns why the last session with the camera has failed, or nil. The Hub tries again, but
// a client need not wait for that.
func (h *Hub) Failure() error {
	if err := h.Health(); !errors.Is(err, ErrNoFrame) {
		return err
	}
	return nil
}

// Readers returns the number of readers.
func (h *Hub) Readers() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.readers)
}

// Run opens sessions until ctx ends.
func (h *Hub) Run(ctx context.Context) {
	backoff := minBackoff
	for ctx.Err() == nil {
		if _, wanted := h.wanted(); !wanted {
			select {
			case <-ctx.Done():
			case <-h.changed:
			}
			continue
		}
		result := h.session(ctx)
		if result != failed {
			backoff = minBackoff
		}
		if result == idle {
			continue
		}
		select {
		case <-ctx.Done():
		case <-time.After(backoff):
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

// result of a session.
type result int

const (
	idle        result = iota // no client reads frames
	interrupted               // failed after a frame
	failed                    // failed without a frame
)

// wanted returns whether a session is needed, and for how long if nothing changes. A negative time
// has no end.
func (h *Hub) wanted() (time.Duration, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.readers) > 0 || h.health != nil {
		return -1, true
	}
	rest := linger - time.Since(h.unused)
	return max(rest, 0), rest > 0
}

// session runs one session.
func (h *Hub) session(ctx context.Context) result {
	session, end := context.WithCancelCause(ctx)
	defer end(nil)
	h.mu.Lock()
	h.arrived = time.Now()
	h.mu.Unlock()
	var done sync.WaitGroup
	done.Go(func() { h.watch(session, end) })

	h.observe(SessionStarted)
	h.log.Info("opening a session with the camera")
	err := h.source.Run(session, h.publish)
	end(nil)
	done.Wait()

	h.mu.Lock()
	defer h.mu.Unlock()
	h.group, h.bytes = nil, 0
	switch cause := context.Cause(session); {
	case ctx.Err() != nil, errors.Is(cause, errIdle):
		h.log.Info("closed the session with the camera")
		return idle
	case errors.As(cause, new(silentError)):
		err = cause
	case err == nil:
		err = errors.New("the camera ended the session")
	}
	state := interrupted
	if h.health != nil {
		state = failed
	}
	h.health = err
	for reader := range h.readers {
		reader.restart()
	}
	h.log.Error("the session with the camera failed", "error", err)
	return state
}

var errIdle = errors.New("idle")

type silentError time.Duration

func (e silentError) Error() string {
	return fmt.Sprintf("the camera sent no frame for %v", time.Duration(e))
}

// watch ends a session that no reader needs, and one without frames.
func (h *Hub) watch(ctx context.Context, end context.CancelCauseFunc) {
	for {
		rest, wanted := h.wanted()
		if !wanted {
			end(errIdle)
			return
		}
		h.mu.Lock()
		silence := frameTimeout - time.Since(h.arrived)
		h.mu.Unlock()
		if silence <= 0 {
			end(silentError(frameTimeout))
			return
		}
		if rest < 0 || silence < rest {
			rest = silence
		}
		timer := time.NewTimer(rest)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-h.changed:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// publish passes a frame to all readers.
func (h *Hub) publish(frame *Frame) {
	h.observe(FrameReceived)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.health != nil {
		h.health, h.unused = nil, time.Now()
		h.changed.Notify()
	}
	h.arrived = time.Now()
	switch {
	case frame.Key:
		h.group, h.bytes = append([]*Frame(nil), frame), frame.size
	case len(h.group) == 0:
	case h.bytes+frame.size > maxPending || len(h.group) >= maxFrames:
		h.group, h.bytes = nil, 0
	default:
		h.group, h.bytes = append(h.group, frame), h.bytes+frame.size
	}
	for reader := range h.readers {
		reader.add(frame)
	}
}
