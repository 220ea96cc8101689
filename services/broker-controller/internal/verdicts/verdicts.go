// Package verdicts derives from the caches of the leader whether the devices and brokers of
// Configurations work, with the functions that kubectl akri and the console use.
package verdicts

import (
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/broadcast"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/requirements"
	"akri.sh/libs/kube"
	"akri.sh/services/broker-controller/internal/cluster"
)

const (
	// minInterval is the minimum time between two evaluations. In a large cluster it is
	// restFactor times the duration of the last one.
	minInterval = time.Second
	restFactor  = 20
	// timeout is more than minInterval and an evaluation.
	timeout = time.Minute
	// silentAfter is more than twice the interval in which a replica of instance-writer renews its
	// Lease.
	silentAfter = 25 * time.Second
	// unmetInterval is the time after which a deleted object is noticed that no informer follows.
	unmetInterval = 15 * time.Second
)

// Observer has the verdicts on all Configurations while it runs.
type Observer struct {
	cache   cluster.Cache
	needs   *requirements.Reader
	own     []akriv0.Subject
	counts  *prometheus.GaugeVec
	log     *zap.Logger
	changed broadcast.Signal
	// earliest is when the next evaluation may begin.
	earliest  time.Time
	sightings explain.Sightings
	// undecided are the conditions of an earlier leader about what this one still waits for.
	undecided map[string]bool

	mu         sync.Mutex
	conditions map[string][]metav1.Condition
	// unmet is what was last found missing.
	unmet []explain.Requirement
	// resources is how Pods get devices, if the cluster decides it.
	resources string
	// renewed is when this process has last seen that an instance-writer renewed its Lease. It is
	// zero before, and if they renew none.
	renewed time.Time
}

// New returns an Observer, which counts the subjects by kind and state. It looks for the objects
// that the process itself needs, too.
func New(clients cluster.Clients, cache cluster.Cache, own []akriv0.Subject, counts *prometheus.GaugeVec, log *zap.Logger) *Observer {
	return &Observer{
		cache: cache, needs: requirements.NewReader(clients.REST), own: own, counts: counts, log: log, changed: broadcast.NewSignal(),
	}
}

// Conditions returns the conditions with the verdicts on a Configuration, or nothing before its
// first evaluation.
func (o *Observer) Conditions(key string) []metav1.Condition {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.conditions[key]
}

// Run evaluates the verdicts after changes, and when a wait ends, until ctx ends. It calls changed
// with the key of each Configuration whose conditions have changed.
func (o *Observer) Run(ctx context.Context, changed func(key string)) {
	if kube.WaitForSync(ctx, o.cache.Informers) != nil {
		return // ctx ended
	}
	defer o.subscribe()()
	o.readUnmet(ctx) // the first verdicts know it
	var reading sync.WaitGroup
	defer reading.Wait()
	reading.Go(func() {
		_ = wait.PollUntilContextCancel(ctx, unmetInterval, false, func(ctx context.Context) (bool, error) {
			o.readUnmet(ctx)
			return false, nil
		})
	})
	o.changed.Notify()
	kube.Loop{
		Objects: o.cache.Informers, Changed: o.changed, Timeout: timeout,
		Reconcile:  func(ctx context.Context) (time.Duration, error) { return o.evaluate(ctx, changed) },
		FirstRetry: minInterval, MaxRetry: timeout, Log: o.log.Warn, Failed: "evaluating verdicts failed",
	}.Run(ctx)
	o.counts.Reset() // of this leader
}

// subscribe notifies the Observer of all changes that can change a verdict.
func (o *Observer) subscribe() (unsubscribe func()) {
	removals := []func(){
		notifyOf(o, o.cache.Configurations), notifyOf(o, o.cache.Instances), notifyOf(o, o.cache.Pods),
		notifyOf(o, o.cache.Jobs), notifyOf(o, o.cache.Nodes),
	}
	for _, own := range o.cache.Installation {
		removals = append(removals, notifyOf(o, own.DaemonSets), notifyOf(o, own.Deployments), notifyOf(o, own.Pods), notifyOf(o, own.Warnings))
	}
	removals = append(removals, o.cache.WriterLease.OnEvent(func(before, after *coordinationv1.Lease) {
		if before != nil && after != nil {
			o.writerRenewed()
		}
	}))
	return func() {
		for _, remove := range removals {
			remove()
		}
	}
}

// readUnmet reads what Akri needs, and how Pods get devices. While the API server does not answer,
// the last answer stays.
func (o *Observer) readUnmet(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, unmetInterval)
	defer cancel()
	snapshot := o.snapshot()
	needed := slices.DeleteFunc(append(snapshot.Needed(), o.own...), func(object akriv0.Subject) bool {
		return object.Kind == "Secret" // which the service must not read
	})
	unmet, err := o.needs.Unmet(limited, needed)
	var resources string
	if err == nil {
		resources, err = o.needs.Resources(limited, snapshot.ResourcesNamespace())
	}
	if ctx.Err() != nil {
		return // the process stops
	}
	if err != nil {
		o.log.Warn("reading what the services need failed", zap.Error(err))
		return
	}

	o.mu.Lock()
	changed := !reflect.DeepEqual(o.unmet, unmet) || o.resources != resources
	o.unmet, o.resources = unmet, resources
	o.mu.Unlock()
	if changed {
		o.changed.Notify()
	}
}

// writerRenewed records that an instance-writer runs.
func (o *Observer) writerRenewed() {
	o.mu.Lock()
	defer o.mu.Unlock()
	wasSilent := o.silentIn(time.Now()) == 0
	o.renewed = time.Now()
	if wasSilent {
		o.changed.Notify()
	}
}

// silentIn returns the time after which instance-writer counts as lost if it does not renew its
// Lease.
// It is called with mu held.
func (o *Observer) silentIn(now time.Time) time.Duration {
	if o.renewed.IsZero() {
		return kube.MaxWait
	}
	return max(0, o.renewed.Add(silentAfter).Sub(now))
}

func notifyOf[T kube.Object](o *Observer, informer *kube.Informer[T]) (remove func()) {
	return informer.OnEvent(func(_, _ T) { o.changed.Notify() })
}

// evaluate derives all verdicts and returns when the next one can change although no object does.
func (o *Observer) evaluate(ctx context.Context, changed func(key string)) (after time.Duration, err error) {
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(time.Until(o.earliest)):
	}
	began := time.Now()
	defer func() { o.earliest = began.Add(max(minInterval, restFactor*time.Since(began))) }()

	o.sightings.Next()
	snapshot := o.snapshot()
	o.mu.Lock()
	after = o.silentIn(began)
	snapshot.Unmet, snapshot.Resources = o.unmet, o.resources
	o.mu.Unlock()
	if after == 0 {
		snapshot.Silent, after = []string{explain.InstanceWriter}, kube.MaxWait
	}
	conditions, undecided, counts := map[string][]metav1.Condition{}, map[string]bool{}, map[[2]string]int{}
	for _, verdict := range explain.Verdicts(snapshot) {
		counts[[2]string{verdict.Subject.Kind, string(verdict.State)}]++
		if kind := conditionTypes[verdict.Subject.Kind]; kind != "" {
			key := cluster.Key(verdict.Subject.Namespace, verdict.Subject.Name)
			if undecided[kind+" "+key] = o.isUndecided(key, kind, verdict.State); !undecided[kind+" "+key] {
				conditions[key] = append(conditions[key], condition(kind, verdict))
			}
		}
		if wait := verdict.Wait; wait != nil && !wait.Until.IsZero() {
			after = min(after, max(time.Until(wait.Until.Time), minInterval))
		}
	}
	o.undecided = undecided
	o.count(counts)
	o.publish(conditions, changed)
	return after, nil
}

// isUndecided reports whether the condition of an earlier leader stays. That leader had seen what
// is broken. This one counts its waits from its own first sight, so it must not replace Broken by
// Waiting.
func (o *Observer) isUndecided(key, kind string, state explain.State) bool {
	undecided, known := o.undecided[kind+" "+key]
	if configuration, exists := o.cache.Configurations.Get(key); !known && exists {
		undecided = meta.IsStatusConditionFalse(configuration.Status.Conditions, kind)
	}
	return undecided && state == explain.Waiting
}

func (o *Observer) publish(conditions map[string][]metav1.Condition, changed func(key string)) {
	o.mu.Lock()
	previous := o.conditions
	o.conditions = conditions
	o.mu.Unlock()
	for key, current := range conditions {
		if !same(previous[key], current) {
			changed(key)
		}
	}
}

// count sets the gauge of each kind and state, those of earlier evaluations to zero.
func (o *Observer) count(counts map[[2]string]int) {
	for kind := range kinds {
		for _, state := range explain.States {
			o.counts.WithLabelValues(kinds[kind], string(state)).Set(0)
		}
	}
	for key, count := range counts {
		o.counts.WithLabelValues(kinds[key[0]], key[1]).Add(float64(count))
	}
}

// snapshot returns the objects of the caches.
func (o *Observer) snapshot() *explain.Snapshot {
	s := &explain.Snapshot{
		Configurations: values[akriv0.Configuration](o.cache.Configurations), Instances: values[akriv0.Instance](o.cache.Instances),
		Sightings: &o.sightings,
		Nodes:     values[corev1.Node](o.cache.Nodes), Pods: values[corev1.Pod](o.cache.Pods), Jobs: values[batchv1.Job](o.cache.Jobs),
	}
	for _, own := range o.cache.Installation {
		s.Pods = append(s.Pods, values[corev1.Pod](own.Pods)...)
		s.DaemonSets = append(s.DaemonSets, values[appsv1.DaemonSet](own.DaemonSets)...)
		s.Deployments = append(s.Deployments, values[appsv1.Deployment](own.Deployments)...)
		s.Warnings = append(s.Warnings, values[corev1.Event](own.Warnings)...)
	}
	return s
}

func values[T any, P interface {
	*T
	kube.Object
}](informer *kube.Informer[P]) []T {
	objects := informer.List()
	copies := make([]T, 0, len(objects))
	for _, object := range objects {
		copies = append(copies, *object)
	}
	return copies
}
