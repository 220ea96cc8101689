package access_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/cache"
	"akri.sh/libs/inspect/console"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/timeline"
	"akri.sh/services/console/internal/access"
)

// source has an Instance and a Warning of each namespace.
type source struct{}

func (source) Snapshot() *explain.Snapshot {
	s := &explain.Snapshot{}
	for _, namespace := range []string{"east", "west"} {
		meta := metav1.ObjectMeta{Namespace: namespace, Name: "camera"}
		s.Instances = append(s.Instances, akriv0.Instance{ObjectMeta: meta})
		s.Warnings = append(s.Warnings, corev1.Event{ObjectMeta: meta})
	}
	return s
}

func (source) Events() []console.Event { return nil }
func (source) Health() cache.Health    { return cache.Health{} }
func (source) Timeline(namespace, name string) timeline.Timeline {
	return timeline.Timeline{Entries: []timeline.Entry{{Text: namespace + "/" + name}}}
}
func (source) Changed() <-chan struct{} { return nil }

// claims is a source with a Pod and a ResourceClaim of each namespace.
type claims struct {
	source
	withClaim bool
}

func (c claims) Snapshot() *explain.Snapshot {
	s := c.source.Snapshot()
	for _, namespace := range []string{"east", "west"} {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "user"}}
		if c.withClaim {
			pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "camera", ResourceClaimName: new("camera")}}
		}
		s.Pods = append(s.Pods, pod)
		s.ResourceClaims = append(s.ResourceClaims, resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "camera"}})
	}
	s.ResourceSlices = []resourcev1.ResourceSlice{{ObjectMeta: metav1.ObjectMeta{Name: "devices"}}}
	return s
}

// The Warnings from which explanations follow are Events.
func TestWarningsAreEvents(t *testing.T) {
	for _, allowed := range []string{"events", "none"} {
		restricted, ok, err := access.Restrict(t.Context(), source{}, func(_ context.Context, resource schema.GroupResource, namespace string) (bool, error) {
			return namespace == "west" && (resource.Resource == "instances" || resource.Resource == allowed), nil
		})
		require.NoError(t, err)
		require.True(t, ok)
		s := restricted.Snapshot()
		require.Len(t, s.Instances, 1)
		if allowed == "none" {
			require.Empty(t, s.Warnings)
			continue
		}
		require.Len(t, s.Warnings, 1)
		require.Equal(t, "west", s.Warnings[0].Namespace)
	}
}

// A user sees the timelines of devices in the namespaces of which the user may list Instances.
func TestTimelines(t *testing.T) {
	restricted, ok, err := access.Restrict(t.Context(), source{}, func(_ context.Context, resource schema.GroupResource, namespace string) (bool, error) {
		return namespace == "west" && resource.Resource == "instances", nil
	})
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "west/gone", restricted.Timeline("west", "gone").Entries[0].Text)
	for _, namespace := range []string{"east", "empty", ""} {
		require.Empty(t, restricted.Timeline(namespace, "gone"), namespace)
	}
}

// Rights on the objects of Dynamic Resource Allocation are reviewed if a Pod has a claim. A viewer
// without the right on ResourceSlices sees that nothing follows from them.
func TestClaims(t *testing.T) {
	for _, withClaim := range []bool{false, true} {
		var mu sync.Mutex
		reviewed := map[string]bool{}
		restricted, ok, err := access.Restrict(t.Context(), claims{withClaim: withClaim}, func(_ context.Context, resource schema.GroupResource, namespace string) (bool, error) {
			mu.Lock()
			defer mu.Unlock()
			if resource.Group == resourcev1.GroupName {
				reviewed[resource.Resource] = true
			}
			return namespace == "west", nil
		})
		require.NoError(t, err)
		require.True(t, ok)
		s := restricted.Snapshot()
		require.Empty(t, s.ResourceSlices)
		if !withClaim {
			require.Empty(t, reviewed)
			require.NotContains(t, s.Unreadable, "resourceslices")
			continue
		}
		require.Len(t, reviewed, 3)
		require.Len(t, s.ResourceClaims, 1)
		require.Equal(t, "west", s.ResourceClaims[0].Namespace)
		require.Contains(t, s.Unreadable, "resourceslices")
		require.NotContains(t, s.Unreadable, "resourceclaims")
	}
}
