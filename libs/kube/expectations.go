package kube

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

const (
	// ExpectationRecheck is when to check the caches again. The change itself usually arrives
	// earlier.
	ExpectationRecheck = 100 * time.Millisecond
	// expectationTimeout is for versions that never arrive, because the API server was restored
	// from a backup.
	expectationTimeout = 30 * time.Second
)

// store is the cache of one kind.
type store interface {
	// LastStoreSyncResourceVersion returns the version that the cache has reached.
	LastStoreSyncResourceVersion() string
}

// Expectations delay the reconciliation of a key until the caches contain the previous writes for
// it. A stale cache would repeat them.
type Expectations struct {
	mu    sync.Mutex
	byKey map[string]expectation
}

// expectation holds the version that each cache must reach.
type expectation struct {
	versions map[store]string
	until    time.Time
}

// NewExpectations returns Expectations without writes.
func NewExpectations() *Expectations { return &Expectations{byKey: map[string]expectation{}} }

// Expect records that an object was written for the key, and its version.
func (e *Expectations) Expect(key string, in store, version string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	versions := e.byKey[key].versions
	if versions == nil {
		versions = map[store]string{}
	}
	versions[in] = version
	e.byKey[key] = expectation{versions, time.Now().Add(expectationTimeout)}
}

// Satisfied reports whether the caches contain all writes for the key. After a timeout, and for
// versions that cannot be compared, it returns true: repeated writes are harmless.
func (e *Expectations) Satisfied(key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if expected := e.byKey[key]; time.Now().Before(expected.until) {
		for in, version := range expected.versions {
			if order, err := resourceversion.CompareResourceVersion(in.LastStoreSyncResourceVersion(), version); err == nil && order < 0 {
				return false
			}
		}
	}
	delete(e.byKey, key)
	return true
}
