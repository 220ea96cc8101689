package properties

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	"k8s.io/apimachinery/pkg/watch"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/broadcast"
	"akri.sh/libs/rpc"
)

const (
	// MaxWatches is the number of objects that are watched. Further objects are polled.
	MaxWatches   = 100
	pollInterval = time.Minute
)

// Ref identifies an object that properties refer to.
type Ref struct{ Kind, Namespace, Name string }

// The kinds of a Ref.
const (
	secretKind    = "Secret"
	configMapKind = "ConfigMap"
)

// Refs returns the objects that the properties refer to, without duplicates.
func Refs(namespace string, properties []akriv0.DiscoveryProperty) []Ref {
	refs := map[Ref]struct{}{}
	add := func(kind string, key *akriv0.KeyRef) {
		if key != nil {
			refs[Ref{kind, namespaceOf(*key, namespace), key.Name}] = struct{}{}
		}
	}
	for _, property := range properties {
		if from := property.ValueFrom; property.Value == nil && from != nil {
			add(secretKind, from.SecretKeyRef)
			add(configMapKind, from.ConfigMapKeyRef)
		}
	}
	return slices.Collect(maps.Keys(refs))
}

// WatchAPI watches one object. Only the arrival of an event matters, not its content.
type WatchAPI interface {
	Watch(ctx context.Context, ref Ref) (watch.Interface, error)
}

// Watcher notifies subscribers when objects may have changed. Subscribers of one object share one
// watch. An object that cannot be watched counts as changed every minute.
type Watcher struct {
	log   *zap.Logger
	api   WatchAPI
	slots chan struct{}

	mu      sync.Mutex
	watches map[Ref]*sharedWatch
}

type sharedWatch struct {
	cancel      context.CancelFunc
	done        chan struct{}
	subscribers map[broadcast.Signal]struct{}
}

// NewWatcher returns a Watcher without watches.
func NewWatcher(log *zap.Logger, api WatchAPI) *Watcher {
	return &Watcher{log: log, api: api, slots: make(chan struct{}, MaxWatches), watches: map[Ref]*sharedWatch{}}
}

// Subscribe sets changed when one of the objects may have changed, until unsubscribe is called.
func (w *Watcher) Subscribe(ctx context.Context, refs []Ref, changed broadcast.Signal) (unsubscribe func()) {
	for _, ref := range refs {
		w.add(ctx, ref, changed)
	}
	return func() {
		for _, ref := range refs {
			w.remove(ref, changed)
		}
	}
}

func (w *Watcher) add(ctx context.Context, ref Ref, changed broadcast.Signal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	shared := w.watches[ref]
	if shared == nil {
		// The watch must outlive its first subscriber.
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		shared = &sharedWatch{cancel: cancel, done: make(chan struct{}), subscribers: map[broadcast.Signal]struct{}{}}
		w.watches[ref] = shared
		go w.run(ctx, ref, shared)
	}
	shared.subscribers[changed] = struct{}{}
}

func (w *Watcher) remove(ref Ref, changed broadcast.Signal) {
	w.mu.Lock()
	shared := w.watches[ref]
	delete(shared.subscribers, changed)
	last := len(shared.subscribers) == 0
	if last {
		delete(w.watches, ref)
	}
	w.mu.Unlock()
	if last {
		shared.cancel()
		<-shared.done
	}
}

func (w *Watcher) notify(shared *sharedWatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for changed := range shared.subscribers {
		changed.Notify()
	}
}

// run watches one object until ctx ends. It also notifies when a watch ends and when one starts,
// because changes in between have no event.
func (w *Watcher) run(ctx context.Context, ref Ref, shared *sharedWatch) {
	defer close(shared.done)
	log := w.log.With(zap.String("kind", ref.Kind), zap.String("object", ref.Namespace+"/"+ref.Name))
	rpc.Keep(ctx, log, pollInterval, func(ctx context.Context, healthy func()) error {
		err := w.watch(ctx, ref, func() { w.notify(shared) }, healthy)
		w.notify(shared)
		return err
	})
}

var errTooManyWatches = fmt.Errorf("watch: more than %d Secrets and ConfigMaps", MaxWatches)

func (w *Watcher) watch(ctx context.Context, ref Ref, notify, healthy func()) error {
	select {
	case w.slots <- struct{}{}:
		defer func() { <-w.slots }()
	default:
		return errTooManyWatches
	}
	events, err := w.api.Watch(ctx, ref)
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer events.Stop()
	for notify(); ; notify() {
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
