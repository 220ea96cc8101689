// Package rights finds out what a user may list.
package rights

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"akri.sh/libs/inspect/explain"
)

// ErrNoAPI means that the cluster does not have the API of Akri.
var ErrNoAPI = errors.New("the cluster has no akri.sh API: install Akri with helm install akri charts/akri --namespace akri-system --create-namespace --wait")

// Finder records in a Snapshot what the user may not list. Several goroutines can use it.
type Finder struct {
	// Namespace is the one to list if the user may not list all.
	Namespace string
	Snapshot  *explain.Snapshot

	mu sync.Mutex
}

// Find calls read for all namespaces and, if that is forbidden, for one.
func (f *Finder) Find(ctx context.Context, resource string, namespaced bool, read func(context.Context, string) error) error {
	err := read(ctx, "")
	oneNamespace := apierrors.IsForbidden(err) && namespaced && f.Namespace != ""
	if oneNamespace {
		err = read(ctx, f.Namespace)
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case err == nil:
		f.Snapshot.OneNamespace = f.Snapshot.OneNamespace || oneNamespace
	case apierrors.IsForbidden(err):
		if !slices.Contains(f.Snapshot.Unreadable, resource) { // Events are listed twice
			f.Snapshot.Unreadable = append(f.Snapshot.Unreadable, resource)
		}
	case apierrors.IsNotFound(err): // a cluster without the type has no objects
	default:
		return fmt.Errorf("list %s: %w", resource, err)
	}
	return nil
}
