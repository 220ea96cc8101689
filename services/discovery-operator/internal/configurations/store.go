package configurations

import (
	"maps"
	"regexp"
	"slices"
	"strings"
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
	byName   map[string]byKey // by instancePrefix
	// byInstance has the Configurations whose name has the form of an Instance, by
	// prefixOfInstance.
	byInstance map[string]byKey
}

type byKey = map[string]*configurationv1.Configuration

func newStore() *Store {
	return &Store{onChange: func(string) {}, received: make(chan struct{}), byKey: byKey{}, byName: map[string]byKey{}, byInstance: map[string]byKey{}}
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

// WithNameOf returns the Configurations that compete with a Configuration of the name, because
// extended resources have no namespace: those with the same name, those whose name may be the name
// of an Instance of it, and those of which it may be an Instance by its name.
func (s *Store) WithNameOf(name string) []*configurationv1.Configuration {
	s.mu.Lock()
	defer s.mu.Unlock()
	prefix := instancePrefix(name)
	competitors := slices.AppendSeq([]*configurationv1.Configuration{}, maps.Values(s.byName[prefix]))
	competitors = slices.AppendSeq(competitors, maps.Values(s.byInstance[prefix]))
	if configuration, ok := prefixOfInstance(name); ok {
		competitors = slices.AppendSeq(competitors, maps.Values(s.byName[configuration]))
	}
	return competitors
}

func instancePrefix(configuration string) string { return akriv0.InstanceName(configuration, "") }

var instanceName = regexp.MustCompile(`^(.+-)[0-9a-f]{6}$`)

// prefixOfInstance returns the instancePrefix of the Configuration that has an Instance of the
// name. It returns false if the name does not have the form of an Instance.
func prefixOfInstance(name string) (string, bool) {
	match := instanceName.FindStringSubmatch(strings.TrimSuffix(instancePrefix(name), "-"))
	if match == nil {
		return "", false
	}
	return match[1], true
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
	add(s.byName, instancePrefix(configuration.GetName()), configuration)
	if prefix, ok := prefixOfInstance(configuration.GetName()); ok {
		add(s.byInstance, prefix, configuration)
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
	remove(s.byName, instancePrefix(configuration.GetName()), key)
	if prefix, ok := prefixOfInstance(configuration.GetName()); ok {
		remove(s.byInstance, prefix, key)
	}
	s.mu.Unlock()
	s.onChange(key)
}

func add(index map[string]byKey, name string, configuration *configurationv1.Configuration) {
	if index[name] == nil {
		index[name] = byKey{}
	}
	index[name][Key(configuration)] = configuration
}

func remove(index map[string]byKey, name, key string) {
	delete(index[name], key)
	if len(index[name]) == 0 {
		delete(index, name)
	}
}
