package video_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/deploy/samples/camera-broker/internal/video"
)

const (
	frameTime = 100 * time.Millisecond
	group     = 10 // frames from a key frame to the next
)

var errUnplugged = errors.New("unplugged")

// camera sends frames. It counts sessions.
type camera struct {
	sessions, open atomic.Int64
	broken, silent atomic.Bool
	size           int // bytes of a frame
}

func (c *camera) Run(ctx context.Context, emit func(*video.Frame)) error {
	c.sessions.Add(1)
	c.open.Add(1)
	defer c.open.Add(-1)
	for number := 0; !c.broken.Load(); number++ {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(frameTime):
		}
		if !c.silent.Load() && !c.broken.Load() {
			emit(video.New(video.H264, time.Duration(number)*frameTime, number%group == 0, [][]byte{make([]byte, c.size)}))
		}
	}
	return errUnplugged
}

func run(t *testing.T, c *camera, test func(t *testing.T, hub *video.Hub)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		hub := video.NewHub(c, slog.New(slog.DiscardHandler), func(video.Event) {})
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { hub.Run(ctx); close(done) }()
		test(t, hub)
		stop()
		<-done
		require.Zero(t, c.open.Load())
	})
}

// TestSessions checks that a session is open exactly while it is needed.
func TestSessions(t *testing.T) {
	c := &camera{}
	run(t, c, func(t *testing.T, hub *video.Hub) {
		require.Error(t, hub.Health())
		<-time.After(time.Second)
		require.NoError(t, hub.Health(), "the camera is tried without readers")
		<-time.After(time.Minute)
		require.Zero(t, c.open.Load(), "there are no readers")
		require.EqualValues(t, 1, c.sessions.Load())

		readers := []*video.Reader{hub.Read(), hub.Read(), hub.Read()}
		<-time.After(time.Minute)
		require.EqualValues(t, 2, c.sessions.Load(), "all readers share a session")
		for _, reader := range readers {
			frame, err := reader.Next(t.Context())
			require.NoError(t, err)
			require.True(t, frame.Key)
			require.EqualValues(t, 1, c.open.Load())
			reader.Close()
		}
		<-time.After(5 * time.Second)
		reader := hub.Read()
		<-time.After(time.Minute)
		require.EqualValues(t, 2, c.sessions.Load(), "the session continues for a client that comes back")
		reader.Close()
		<-time.After(11 * time.Second)
		require.Zero(t, c.open.Load())
	})
}

// TestCameraComesBack checks that a camera is tried until it works, with pauses, also without
// readers, and that readers learn that the times begin again.
func TestCameraComesBack(t *testing.T) {
	c := &camera{}
	c.broken.Store(true)
	run(t, c, func(t *testing.T, hub *video.Hub) {
		<-time.After(10 * time.Minute)
		require.ErrorIs(t, hub.Health(), errUnplugged)
		require.InDelta(t, 24, c.sessions.Load(), 4, "pauses grow to 30 s")
		c.broken.Store(false)
		<-time.After(31 * time.Second)
		require.NoError(t, hub.Health())

		reader := hub.Read()
		defer reader.Close()
		_, err := reader.Next(t.Context())
		require.NoError(t, err)
		c.broken.Store(true)
		<-time.After(time.Second)
		_, err = reader.Next(t.Context())
		require.ErrorIs(t, err, video.ErrRestarted)
		c.broken.Store(false)
		frame, err := reader.Next(t.Context())
		require.NoError(t, err)
		require.Zero(t, frame.Time)

		c.silent.Store(true)
		<-time.After(11 * time.Second)
		require.EqualError(t, hub.Health(), "the camera sent no frame for 10s")
	})
}

// TestReaders lets random readers read at random times. Each reads frames that can be decoded: a
// key frame or the frame after the last one. Reading is bounded, and does not delay the camera.
func TestReaders(t *testing.T) {
	c := &camera{size: 1 << 20}
	run(t, c, func(t *testing.T, hub *video.Hub) {
		random := rand.New(rand.NewPCG(1, 2))
		type state struct {
			reader *video.Reader
			last   time.Duration
		}
		readers := map[int]*state{}
		for range 5000 {
			number := random.IntN(5)
			s := readers[number]
			switch choice := random.IntN(20); {
			case s == nil:
				readers[number] = &state{hub.Read(), -1}
			case choice == 0:
				s.reader.Close()
				delete(readers, number)
			case choice == 1:
				<-time.After(time.Duration(random.Int64N(int64(5 * time.Second))))
			default:
				frame, err := s.reader.Next(t.Context())
				require.NoError(t, err)
				require.True(t, frame.Key || s.last >= 0 && frame.Time == s.last+frameTime, "%v after %v", frame.Time, s.last)
				s.last = frame.Time
				count := 0
				for copied := *s; count < 40 && !copied.reader.Empty() && random.IntN(2) == 0; count++ {
					frame, err := copied.reader.Next(t.Context())
					require.NoError(t, err)
					require.True(t, frame.Key || frame.Time == s.last+frameTime)
					s.last = frame.Time
				}
				require.Less(t, count, 18, "at most 16 MiB are kept")
			}
		}
		for _, s := range readers {
			s.reader.Close()
		}
		require.EqualValues(t, 1, c.sessions.Load())
	})
}
