package controller

import (
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/grace"
	"akri.sh/services/broker-controller/internal/cluster"
	"akri.sh/services/broker-controller/internal/render"
)

// rollout replaces the running brokers of a Configuration one at a time. It holds what the cache
// may not show yet. A new leader starts with an empty rollout and uses the cache only.
type rollout struct {
	mu sync.Mutex
	// updates in progress, by Configuration.
	updates map[types.UID]update
	// stuckAfter is how long the rollout waits for a pending Pod.
	stuckAfter time.Duration
	sightings  *sightings
}

// update is the replacement of one broker. It lasts from before the old Pod is deleted until the
// new Pod runs.
type update struct {
	instance   string
	pod        string
	replaced   types.UID
	generation int64
	// moved means that the new Pod was deleted and the next one does not exist yet.
	moved bool
}

func newRollout(stuckAfter time.Duration, sightings *sightings) *rollout {
	return &rollout{updates: map[types.UID]update{}, stuckAfter: stuckAfter, sightings: sightings}
}

// tryStart reports whether a broker of the Instance may be replaced now. If so, no other Instance
// of the Configuration may until the update is done.
func (r *rollout) tryStart(
	cache cluster.Cache, instance *akriv0.Instance, configuration *akriv0.Configuration, now time.Time,
) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := cluster.Key(instance.Namespace, instance.Name)
	if current, ok := r.updates[configuration.UID]; ok && !current.done(cache, configuration) {
		return current.instance == key && current.canRetry(cache, configuration)
	}
	delete(r.updates, configuration.UID)
	if r.changing(cache, configuration, now) {
		return false
	}
	r.updates[configuration.UID] = update{instance: key, generation: configuration.Generation}
	return true
}

// changing reports whether a broker of the Configuration is being deleted or starts. A Pod that has
// been pending for stuckAfter does not count.
func (r *rollout) changing(cache cluster.Cache, configuration *akriv0.Configuration, now time.Time) bool {
	pods := cache.PodsOfConfiguration(configuration.Namespace, configuration.Name)
	return slices.ContainsFunc(pods, func(pod *corev1.Pod) bool {
		start := grace.Wait{Awaited: "the Pod starts", Since: r.sightings.of(pod, now).Pending, For: r.stuckAfter, Then: "the rollout continues"}
		return pod.DeletionTimestamp != nil || !start.Over(now)
	})
}

// replacing records the Pod that the update replaces. It must be called before the Pod is deleted.
// Pods that do not run are replaced independently of the rollout.
func (r *rollout) replacing(configuration *akriv0.Configuration, instance *akriv0.Instance, pod *corev1.Pod) {
	r.change(configuration, instance, func(u *update) {
		if u.pod == "" && pod.Status.Phase == corev1.PodRunning {
			u.pod, u.replaced = pod.Name, pod.UID
		}
	})
}

// moved records that the new Pod of an update is deleted because it does not start. The next Pod of
// the Instance, perhaps on another node, takes its place.
func (r *rollout) moved(configuration *akriv0.Configuration, instance *akriv0.Instance, pod string) {
	r.change(configuration, instance, func(u *update) { u.moved = u.moved || u.pod == pod })
}

// created records a new Pod.
func (r *rollout) created(configuration *akriv0.Configuration, instance *akriv0.Instance, pod string) {
	r.change(configuration, instance, func(u *update) {
		if u.moved {
			u.pod, u.moved = pod, false
		}
	})
}

// remove ends the update of an Instance that is gone.
func (r *rollout) remove(instance string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.updates, func(_ types.UID, u update) bool { return u.instance == instance })
}

// change calls f with the update of the Instance, if there is one.
func (r *rollout) change(configuration *akriv0.Configuration, instance *akriv0.Instance, f func(*update)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	current, ok := r.updates[configuration.UID]
	if ok && current.instance == cluster.Key(instance.Namespace, instance.Name) {
		f(&current)
		r.updates[configuration.UID] = current
	}
}

// done reports whether the new Pod runs or will not be created.
func (u update) done(cache cluster.Cache, configuration *akriv0.Configuration) bool {
	if u.pod == "" {
		return false // replacing was not called yet
	}
	instance, ok := cache.Instances.Get(u.instance)
	if !ok {
		return true
	}
	if u.moved {
		return u.generation != configuration.Generation
	}
	if pod, ok := cache.Pods.Get(cluster.Key(configuration.Namespace, u.pod)); ok {
		return pod.UID != u.replaced && pod.Status.Phase == corev1.PodRunning
	}
	hasNode := func(node string) bool { return render.PodName(instance, node) == u.pod }
	// After an edit the capacity can be too small for the new Pod.
	return u.generation != configuration.Generation || !slices.ContainsFunc(instance.Spec.Nodes, hasNode)
}

// canRetry reports whether the old Pod still exists, for example because its deletion failed.
func (u update) canRetry(cache cluster.Cache, configuration *akriv0.Configuration) bool {
	pod, ok := cache.Pods.Get(cluster.Key(configuration.Namespace, u.pod))
	return ok && pod.UID == u.replaced && pod.DeletionTimestamp == nil
}
