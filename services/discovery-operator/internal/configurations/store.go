package configurations

import (
	"maps"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	akriv0 "akri.sh/libs/apis/akri/v0"
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
	// byName has the Configurations by the prefix of their Instances' names, and those that are
	// named like an Instance also by the prefix of that name.
	byName map[string]byKey
}

type byKey = map[string]*configurationv1.Configuration

func newStore() *Store {
	return &Store{onChange: func(string) {}, received: make(chan struct{}), byKey: byKey{}, byName: map[string]byKey{}}
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

// WithNameOf returns the Configurations that compete with a Configuration of the name for extended
// resources, which have no namespace: their Instances have the same names, or one of them is named
// like an Instance of the other.
func (s *Store) WithNameOf(name string) []*configurationv1.Configuration {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := byKey{}
	for _, prefix := range prefixes(name) {
		maps.Copy(found, s.byName[prefix])
	}
	maps.DeleteFunc(found, func(_ string, other *configurationv1.Configuration) bool {
		return !akriv0.NamesConflict(name, other.GetName())
	})
	return slices.Collect(maps.Values(found))
}

// prefixes returns the keys of byName for a Configuration.
func prefixes(name string) []string {
	own := akriv0.InstanceName(name, "")
	if prefix := akriv0.InstancePrefix(name); prefix != "" {
		return []string{own, prefix}
	}
	return []string{own}
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
	for _, prefix := range prefixes(configuration.GetName()) {
		if s.byName[prefix] == nil {
			s.byName[prefix] = byKey{}
		}
		s.byName[prefix][key] = configuration
	}
	s.mu.Unlock()
	if changed {
		s.onChange(key)
	}
}

func (s *Store) remove(key string) {
	s.mu.Lock()
	configuration := s.byKey[key]
	delete(s.byKey, key)
	for _, prefix := range prefixes(configuration.GetName()) {
		delete(s.byName[prefix], key)
		if len(s.byName[prefix]) == 0 {
			delete(s.byName, prefix)
		}
	}
	s.mu.Unlock()
	s.onChange(key)
}
