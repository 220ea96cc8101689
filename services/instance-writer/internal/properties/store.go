package properties

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/watch"

	"akri.sh/libs/broadcast"
	"akri.sh/libs/rpc"
)

const (
	// MaxWatches is the number of objects that are watched. Further objects are polled.
	MaxWatches   = 1000
	pollInterval = time.Minute
	// maxRetryDelay is shorter: a user often grants the right to read an object after creating the
	// Configuration.
	maxRetryDelay = 5 * time.Second
)

// API reads and watches single objects.
type API interface {
	// Read returns the data of an object. It returns ErrNotFound, a ForbiddenError or the reason
	// why the object cannot be read at the moment.
	Read(ctx context.Context, ref Ref) (map[string][]byte, error)
	// Watch watches an object. Only the arrival of an event matters, not its content.
	Watch(ctx context.Context, ref Ref) (watch.Interface, error)
}

// Store holds the last state of objects, in memory only. It has one watch for each object.
type Store struct {
	log     *zap.Logger
	api     API
	changed broadcast.Signal
	slots   chan struct{}

	mu      sync.Mutex
	objects map[Ref]*object
	running sync.WaitGroup
}

// object is the state of an object. The mutex of the Store guards data and err.
type object struct {
	ref    Ref
	cancel context.CancelFunc
	data   map[string][]byte
	err    error
}

// NewStore returns an empty Store. It sets changed after each change of an object.
func NewStore(log *zap.Logger, api API, changed broadcast.Signal) *Store {
	return &Store{log: log, api: api, changed: changed, slots: make(chan struct{}, MaxWatches), objects: map[Ref]*object{}}
}

// Watch reads and watches these objects until ctx ends, and forgets all others.
func (s *Store) Watch(ctx context.Context, refs map[Ref]struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ref, object := range s.objects {
		if _, needed := refs[ref]; !needed {
			object.cancel()
			delete(s.objects, ref)
		}
	}
	for ref := range refs {
		if s.objects[ref] == nil {
			ctx, cancel := context.WithCancel(ctx)
			added := &object{ref: ref, cancel: cancel, err: ErrUnread}
			s.objects[ref] = added
			s.running.Go(func() { s.run(ctx, added) })
		}
	}
}

// Wait waits until all watches have stopped, after the context of Watch has ended.
func (s *Store) Wait() { s.running.Wait() }

// Get implements Get.
func (s *Store) Get(ref Ref) (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	object := s.objects[ref]
	if object == nil {
		return nil, ErrUnread
	}
	return object.data, object.err
}

// run updates one object until ctx ends.
func (s *Store) run(ctx context.Context, object *object) {
	log := s.log.With(zap.String("kind", object.ref.Kind), zap.String("object", object.ref.Namespace+"/"+object.ref.Name))
	delays := rpc.NewBackOff(50*time.Millisecond, pollInterval)
	for {
		readable := s.read(ctx, object)
		err := s.follow(ctx, object, delays.Reset)
		if ctx.Err() != nil {
			return
		}
		delay := delays.NextBackOff()
		if !readable {
			delay = min(delay, maxRetryDelay)
		}
		log.Debug("watch ended", zap.Error(err), zap.Duration("retry_in", delay))
		select {
		case <-ctx.Done():
			return
		case <-time.After(delay):
		}
	}
}

var errTooManyWatches = fmt.Errorf("watch: more than %d Secrets and ConfigMaps", MaxWatches)

// follow reads an object after each event of a watch until the watch ends. It also reads the object
// when the watch is open: there is no event for an earlier deletion.
func (s *Store) follow(ctx context.Context, object *object, healthy func()) error {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		return errTooManyWatches
	}
	events, err := s.api.Watch(ctx, object.ref)
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer events.Stop()
	for {
		s.read(ctx, object)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, open := <-events.ResultChan():
			if !open || event.Type == watch.Error {
				return errors.New("watch: closed by the API server")
			}
			healthy()
		}
	}
}

// read updates the state of an object and returns whether it could be read. An object that cannot
// be read at the moment keeps its last state.
func (s *Store) read(ctx context.Context, object *object) bool {
	data, err := s.api.Read(ctx, object.ref)
	var forbidden *ForbiddenError
	known := err == nil || errors.Is(err, ErrNotFound) || errors.As(err, &forbidden)
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil || !known && !errors.Is(object.err, ErrUnread) {
		return false
	}
	if !reflect.DeepEqual(object.data, data) || !sameError(object.err, err) {
		object.data, object.err = data, err
		s.changed.Notify()
	}
	return err == nil || errors.Is(err, ErrNotFound)
}

func sameError(a, b error) bool {
	if a == nil || b == nil {
		return a == b //nolint:errorlint // compares with nil
	}
	return a.Error() == b.Error()
}
