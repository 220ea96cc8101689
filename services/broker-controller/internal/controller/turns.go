package controller

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/services/broker-controller/internal/cluster"
	"akri.sh/services/broker-controller/internal/render"
)

// turns let the brokers of a Configuration be replaced one at a time. It remembers what the cache
// may not show yet; a new leader begins without and goes by the cache alone.
type turns struct {
	mu   sync.Mutex
	held map[types.UID]turn // by Configuration
}

// turn of one broker, from before it is removed until the next one runs.
type turn struct {
	instance   string
	pod        string
	replaced   types.UID
	generation int64
}

// take says whether a broker of the Instance may be replaced now, and if so holds the turn for it.
func (t *turns) take(
	cache cluster.Cache, instance *akriv0.Instance, configuration *akriv0.Configuration, now time.Time, stuckAfter time.Duration,
) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := cluster.Key(instance.Namespace, instance.Name)
	if held, there := t.held[configuration.UID]; there && !held.over(cache, configuration) {
		return held.instance == key && held.unused(cache, configuration)
	}
	delete(t.held, configuration.UID)
	changing := func(pod *corev1.Pod) bool {
		starting := pod.Status.Phase == corev1.PodPending && now.Sub(pod.CreationTimestamp.Time) < stuckAfter
		return pod.DeletionTimestamp != nil || starting
	}
	if slices.ContainsFunc(cache.PodsOfConfiguration(configuration.Namespace, configuration.Name), changing) {
		return false
	}
	t.hold(configuration, turn{instance: key, generation: configuration.Generation})
	return true
}

// replacing says which broker the turn is used for.
func (t *turns) replacing(configuration *akriv0.Configuration, instance *akriv0.Instance, pod *corev1.Pod) {
	t.mu.Lock()
	defer t.mu.Unlock()
	held, there := t.held[configuration.UID]
	key := cluster.Key(instance.Namespace, instance.Name)
	if !there || held.instance != key || held.pod != "" || pod.Status.Phase != corev1.PodRunning {
		return // a broker that does not run may be replaced out of turn
	}
	held.pod, held.replaced = pod.Name, pod.UID
	t.held[configuration.UID] = held
}

func (t *turns) hold(configuration *akriv0.Configuration, next turn) {
	if t.held == nil {
		t.held = map[types.UID]turn{}
	}
	t.held[configuration.UID] = next
}

// over: the next broker runs, or none is to come.
func (t turn) over(cache cluster.Cache, configuration *akriv0.Configuration) bool {
	if t.pod == "" {
		return false // about to be used
	}
	instance, there := cache.Instances.Get(t.instance)
	if !there {
		return true
	}
	pod, there := cache.Pods.Get(cluster.Key(configuration.Namespace, t.pod))
	if there {
		return pod.UID != t.replaced && pod.Status.Phase == corev1.PodRunning
	}
	named := func(node string) bool { return render.PodName(instance, node) == t.pod }
	// After an edit the capacity may be too small for it to come back.
	return t.generation != configuration.Generation || !slices.ContainsFunc(instance.Spec.Nodes, named)
}

// unused: as far as is known the broker has not been removed, perhaps because that failed.
func (t turn) unused(cache cluster.Cache, configuration *akriv0.Configuration) bool {
	pod, there := cache.Pods.Get(cluster.Key(configuration.Namespace, t.pod))
	return there && pod.UID == t.replaced && pod.DeletionTimestamp == nil
}
