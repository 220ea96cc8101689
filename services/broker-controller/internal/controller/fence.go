package controller

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// lookAgain is when to see whether a cache has caught up. As a rule what it waits for comes sooner, as a change.
const lookAgain = 100 * time.Millisecond

// store is a cache of one kind.
type store interface {
	// LastStoreSyncResourceVersion is up to where the cache has come.
	LastStoreSyncResourceVersion() string
}

// fences keep keys from being worked on before the caches show what was last written for them: it would be written
// again.
type fences struct {
	mu   sync.Mutex
	kept map[string]map[store]string // by key: the version that each cache must have reached
}

func newFences() *fences { return &fences{kept: map[string]map[store]string{}} }

// wrote says that an object was written for the key, and its version since.
func (f *fences) wrote(key string, in store, version string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kept[key] == nil {
		f.kept[key] = map[store]string{}
	}
	f.kept[key][in] = version
}

// stand says whether a cache is still behind what was written for the key.
func (f *fences) stand(key string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for in, version := range f.kept[key] {
		// A version that cannot be compared holds nobody up: writing again is only a waste.
		if order, err := resourceversion.CompareResourceVersion(in.LastStoreSyncResourceVersion(), version); err == nil && order < 0 {
			return true
		}
	}
	delete(f.kept, key)
	return false
}
