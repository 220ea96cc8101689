package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

const (
	// lookAgain is when to see whether a cache has caught up. As a rule what it waits for comes
	// sooner, as a change.
	lookAgain = 100 * time.Millisecond
	// fenceMax is for versions that never come: those of an API server that was put back to an
	// older state.
	fenceMax = 30 * time.Second
)

// store is a cache of one kind.
type store interface {
	// LastStoreSyncResourceVersion is up to where the cache has come.
	LastStoreSyncResourceVersion() string
}

// fences keep keys from being worked on before the caches show what was last written for them: it
// would be written again.
type fences struct {
	mu   sync.Mutex
	kept map[string]fence // by key
}

// fence is the version that each cache must have reached.
type fence struct {
	versions map[store]string
	until    time.Time
}

func newFences() *fences { return &fences{kept: map[string]fence{}} }

// wrote says that an object was written for the key, and its version since.
func (f *fences) wrote(key string, in store, version string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	versions := f.kept[key].versions
	if versions == nil {
		versions = map[store]string{}
	}
	versions[in] = version
	f.kept[key] = fence{versions, time.Now().Add(fenceMax)}
}

// stand says whether a cache is still behind what was written for the key.
func (f *fences) stand(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	// Neither time nor a version that cannot be compared holds anybody up for ever: writing again
	// is only a waste.
	if kept := f.kept[key]; time.Now().Before(kept.until) {
		for in, version := range kept.versions {
			if order, err := resourceversion.CompareResourceVersion(in.LastStoreSyncResourceVersion(), version); err == nil && order < 0 {
				return true
			}
		}
	}
	delete(f.kept, key)
	return false
}
