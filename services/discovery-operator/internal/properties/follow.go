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
	"akri.sh/libs/rpc"
)

const (
	// MaxWatches of objects are open at a time; the others are looked at every lookPause.
	MaxWatches = 100
	lookPause  = time.Minute
)

// Ref names an object that properties refer to.
type Ref struct{ Kind, Namespace, Name string }

// The kinds of a Ref.
const (
	secretKind    = "Secret"
	configMapKind = "ConfigMap"
)

// Refs are the objects that the properties refer to, each once.
func Refs(namespace string, properties []akriv0.DiscoveryProperty) []Ref {
	refs := map[Ref]struct{}{}
	add := func(kind string, key *akriv0.KeyRef) {
		if key != nil {
			refs[Ref{kind, inNamespace(*key, namespace), key.Name}] = struct{}{}
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

// Watcher watches one object. Events need not say more than that something happened.
type Watcher interface {
	Watch(ctx context.Context, ref Ref) (watch.Interface, error)
}

// Follower tells when objects may have changed: those that are named and no others, one watch for each however many
// follow it. Where an object may not be watched, it asks to look at it again every minute.
type Follower struct {
	log     *zap.Logger
	watcher Watcher
	slots   chan struct{}

	mu  sync.Mutex
	all map[Ref]*followed
}

type followed struct {
	cancel context.CancelFunc
	done   chan struct{}
	users  map[*func()]struct{}
}

// NewFollower starts nothing.
func NewFollower(log *zap.Logger, watcher Watcher) *Follower {
	return &Follower{log: log, watcher: watcher, slots: make(chan struct{}, MaxWatches), all: map[Ref]*followed{}}
}

// Follow calls changed, which must not block, when one of the objects may have changed, until stop.
func (f *Follower) Follow(ctx context.Context, refs []Ref, changed func()) (stop func()) {
	user := &changed
	for _, ref := range refs {
		f.add(ctx, ref, user)
	}
	return func() {
		for _, ref := range refs {
			f.remove(ref, user)
		}
	}
}

func (f *Follower) add(ctx context.Context, ref Ref, user *func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	known := f.all[ref]
	if known == nil {
		// The first user may leave before the others.
		ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		known = &followed{cancel: cancel, done: make(chan struct{}), users: map[*func()]struct{}{}}
		f.all[ref] = known
		go f.keep(ctx, ref, known)
	}
	known.users[user] = struct{}{}
}

func (f *Follower) remove(ref Ref, user *func()) {
	f.mu.Lock()
	known := f.all[ref]
	delete(known.users, user)
	last := len(known.users) == 0
	if last {
		delete(f.all, ref)
	}
	f.mu.Unlock()
	if last {
		known.cancel()
		<-known.done
	}
}

func (f *Follower) tell(known *followed) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for user := range known.users {
		(*user)()
	}
}

// keep watches one object. Whatever may have been missed while there was no watch is told of when there is one.
func (f *Follower) keep(ctx context.Context, ref Ref, known *followed) {
	defer close(known.done)
	log := f.log.With(zap.String("kind", ref.Kind), zap.String("object", ref.Namespace+"/"+ref.Name))
	rpc.Keep(ctx, log, lookPause, func(ctx context.Context, healthy func()) error {
		err := f.watch(ctx, ref, func() { f.tell(known) }, healthy)
		f.tell(known)
		return err
	})
}

var errTooMany = errors.New("too many Secrets and ConfigMaps are watched")

func (f *Follower) watch(ctx context.Context, ref Ref, tell, healthy func()) error {
	select {
	case f.slots <- struct{}{}:
		defer func() { <-f.slots }()
	default:
		return errTooMany
	}
	events, err := f.watcher.Watch(ctx, ref)
	if err != nil {
		return fmt.Errorf("watch: %w", err)
	}
	defer events.Stop()
	for tell(); ; tell() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, open := <-events.ResultChan():
			if !open || event.Type == watch.Error {
				return errors.New("watch: it has ended")
			}
			healthy()
		}
	}
}
