package configurations

import (
	"maps"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	configurationv1 "akri.sh/proto/akri/configuration/v1"
)

// Key returns the namespace/name key of a Configuration.
func Key(configuration *configurationv1.Configuration) string {
	return configuration.GetNamespace() + "/" + configuration.GetName()
}

// Store holds the Configurations. The messages must not be changed.
type Store struct {
	onChange func(key string)

	mu       sync.Mutex
	received chan struct{} // closed after the first snapshot
	byKey    byKey
}

type byKey = map[string]*configurationv1.Configuration

func newStore() *Store {
	return &Store{onChange: func(string) {}, received: make(chan struct{}), byKey: byKey{}}
}

// OnChange calls f with the key of each Configuration that is added, changed or removed. f must not
// block. OnChange must be called before Run.
func (s *Store) OnChange(f func(key string)) { s.onChange = f }

// Received returns a channel that is closed when all Configurations have been received once.
func (s *Store) Received() <-chan struct{} { return s.received }

// Get returns a Configuration, or nil.
func (s *Store) Get(key string) *configurationv1.Configuration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byKey[key]
}

// Keys returns the keys of all Configurations.
func (s *Store) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.byKey))
}

// replace replaces all Configurations.
func (s *Store) replace(all []*configurationv1.Configuration) {
	gone := map[string]bool{}
	for _, key := range s.Keys() {
		gone[key] = true
	}
	for _, configuration := range all {
		delete(gone, Key(configuration))
		s.put(configuration)
	}
	for key := range gone {
		s.remove(key)
	}
	select {
	case <-s.received:
	default:
		close(s.received)
	}
}

func (s *Store) put(configuration *configurationv1.Configuration) {
	key := Key(configuration)
	s.mu.Lock()
	changed := !proto.Equal(s.byKey[key], configuration)
	s.byKey[key] = configuration
	s.mu.Unlock()
	if changed {
		s.onChange(key)
	}
}

func (s *Store) remove(key string) {
	s.mu.Lock()
	delete(s.byKey, key)
	s.mu.Unlock()
	s.onChange(key)
}
