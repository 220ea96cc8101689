// Package access shows each user the objects that the user may list.
package access

import (
	"context"
	"maps"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/cache"
	"akri.sh/libs/inspect/console"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/timeline"
)

// kind of objects, by the name of its resource, as in explain.Snapshot.Unreadable.
type kind string

const (
	configurations kind = "configurations"
	instances      kind = "instances"
	pods           kind = "pods"
	jobs           kind = "jobs"
	nodes          kind = "nodes"
	events         kind = "events"
	daemonSets     kind = "daemonsets"
	deployments    kind = "deployments"
	webhooks       kind = "validatingwebhookconfigurations"
	claims         kind = "resourceclaims"
	templates      kind = "resourceclaimtemplates"
	resourceSlices kind = "resourceslices"
)

// groups has the API group of each kind.
var groups = map[kind]string{
	configurations: akriv0.Group, instances: akriv0.Group, pods: "", jobs: "batch", nodes: "", events: "",
	daemonSets: "apps", deployments: "apps", webhooks: "admissionregistration.k8s.io",
	claims: resourcev1.GroupName, templates: resourcev1.GroupName, resourceSlices: resourcev1.GroupName,
}

// clusterScoped are the kinds without namespaces.
var clusterScoped = []kind{nodes, webhooks, resourceSlices}

// Devices are the resources that a viewer must be able to list.
var Devices = []schema.GroupResource{configurations.resource(), instances.resource()}

func (k kind) resource() schema.GroupResource {
	return schema.GroupResource{Group: groups[k], Resource: string(k)}
}

// MayList returns whether a user may list the objects of a namespace, or of all if it is empty.
type MayList func(ctx context.Context, resource schema.GroupResource, namespace string) (bool, error)

// view is a console.Source with the objects of one moment.
type view struct {
	snapshot *explain.Snapshot
	events   []console.Event
	health   cache.Health
	changed  <-chan struct{}
	// timeline returns that of a device in a namespace of which the user may list Instances.
	timeline func(namespace, name string) timeline.Timeline
}

func (v *view) Snapshot() *explain.Snapshot { return v.snapshot }
func (v *view) Events() []console.Event     { return v.events }
func (v *view) Health() cache.Health        { return v.health }
func (v *view) Changed() <-chan struct{}    { return v.changed }

func (v *view) Timeline(namespace, name string) timeline.Timeline { return v.timeline(namespace, name) }

// Restrict returns the objects that a user may list. ok is false if these can be no devices.
func Restrict(ctx context.Context, all console.Source, mayList MayList) (source console.Source, ok bool, err error) {
	v := &view{changed: all.Changed(), health: all.Health(), snapshot: all.Snapshot(), events: all.Events()}
	rights, err := find(ctx, kinds(v), namespaces(v), mayList)
	if err != nil {
		return nil, false, err
	}
	v.filter(rights)
	v.timeline = func(namespace, name string) timeline.Timeline {
		if !rights.mayList(instances, namespace) {
			return timeline.Timeline{}
		}
		return all.Timeline(namespace, name)
	}
	return v, rights.any(configurations) || rights.any(instances), nil
}

// kinds returns those whose rights are reviewed. Without Pods that have claims, nothing follows
// from the objects of Dynamic Resource Allocation.
func kinds(v *view) []kind {
	all := slices.Collect(maps.Keys(groups))
	if slices.ContainsFunc(v.snapshot.Pods, func(pod corev1.Pod) bool { return explain.HasClaims(&pod) }) {
		return all
	}
	return slices.DeleteFunc(all, func(k kind) bool { return groups[k] == resourcev1.GroupName })
}

// namespaces returns the namespaces of the objects of each kind that has namespaces.
func namespaces(v *view) map[kind]map[string]bool {
	s := v.snapshot
	ofEvents := of(v.events)
	maps.Copy(ofEvents, of(s.Warnings))
	return map[kind]map[string]bool{
		configurations: of(s.Configurations), instances: of(s.Instances), pods: of(s.Pods), jobs: of(s.Jobs),
		daemonSets: of(s.DaemonSets), deployments: of(s.Deployments), events: ofEvents,
		claims: of(s.ResourceClaims), templates: of(s.ResourceClaimTemplates),
	}
}

// pointer is the pointer to an API type. It is inferred.
type pointer[T any] interface {
	*T
	metav1.Object
}

func of[T any, P pointer[T]](objects []T) map[string]bool {
	found := map[string]bool{}
	for i := range objects {
		found[P(&objects[i]).GetNamespace()] = true
	}
	return found
}

// rights are what a user may list.
type rights struct {
	mu sync.Mutex
	// in has the namespaces that were reviewed. The empty one stands for all.
	in map[kind]map[string]bool
}

// find reviews the right to list a kind in all namespaces and, without it, in those with objects.
func find(ctx context.Context, kinds []kind, namespaces map[kind]map[string]bool, mayList MayList) (*rights, error) {
	r := &rights{in: map[kind]map[string]bool{}}
	everywhere := map[kind]map[string]bool{}
	for _, k := range kinds {
		r.in[k] = map[string]bool{}
		everywhere[k] = map[string]bool{"": true}
	}
	if err := r.review(ctx, mayList, everywhere); err != nil {
		return nil, err
	}
	if err := r.review(ctx, mayList, map[kind]map[string]bool{
		configurations: namespaces[configurations], instances: namespaces[instances],
	}); err != nil {
		return nil, err
	}
	// Whether other kinds can be listed next to the devices decides what follows from their
	// absence.
	visible := r.visible()
	others := map[kind]map[string]bool{}
	for _, k := range kinds {
		if with, namespaced := namespaces[k]; namespaced {
			others[k] = maps.Clone(with)
			maps.Copy(others[k], visible)
		}
	}
	return r, r.review(ctx, mayList, others)
}

// review reviews the rights on kinds of which the user may not list the objects of all namespaces.
func (r *rights) review(ctx context.Context, mayList MayList, namespaces map[kind]map[string]bool) error {
	group, ctx := errgroup.WithContext(ctx)
	for k, with := range namespaces {
		if r.all(k) {
			continue
		}
		for namespace := range with {
			group.Go(func() error {
				allowed, err := mayList(ctx, k.resource(), namespace)
				r.mu.Lock()
				defer r.mu.Unlock()
				r.in[k][namespace] = allowed
				return err
			})
		}
	}
	return group.Wait()
}

// visible returns the namespaces of which the user may list Configurations or Instances.
func (r *rights) visible() map[string]bool {
	found := map[string]bool{}
	for _, k := range []kind{configurations, instances} {
		for namespace, allowed := range r.in[k] {
			if allowed && namespace != "" {
				found[namespace] = true
			}
		}
	}
	return found
}

func (r *rights) any(k kind) bool { return slices.Contains(slices.Collect(maps.Values(r.in[k])), true) }

func (r *rights) all(k kind) bool { return r.in[k][""] }

func (r *rights) mayList(k kind, namespace string) bool { return r.all(k) || r.in[k][namespace] }

// filter removes the objects that the user may not list.
func (v *view) filter(r *rights) {
	s, visible := v.snapshot, r.visible()
	filtered := map[kind]bool{
		configurations: remove(r, configurations, &s.Configurations), instances: remove(r, instances, &s.Instances),
		pods: remove(r, pods, &s.Pods), jobs: remove(r, jobs, &s.Jobs), nodes: remove(r, nodes, &s.Nodes),
		daemonSets: remove(r, daemonSets, &s.DaemonSets), deployments: remove(r, deployments, &s.Deployments),
		webhooks: remove(r, webhooks, &s.Webhooks), events: remove(r, events, &v.events),
		claims: remove(r, claims, &s.ResourceClaims), templates: remove(r, templates, &s.ResourceClaimTemplates),
		resourceSlices: remove(r, resourceSlices, &s.ResourceSlices),
	}
	remove(r, events, &s.Warnings)
	remove(r, events, &s.Unprepared)
	for k := range r.in {
		if r.all(k) {
			continue
		}
		if !slices.Contains(clusterScoped, k) {
			s.OneNamespace = true
		}
		if slices.Contains(clusterScoped, k) || !r.any(k) || r.missing(k, visible) || (filtered[k] && (k == daemonSets || k == deployments)) {
			s.Unreadable = append(s.Unreadable, string(k))
		}
	}
	slices.Sort(s.Unreadable)
}

// missing returns whether the user may not list a kind in a namespace with devices that are shown.
func (r *rights) missing(k kind, visible map[string]bool) bool {
	for namespace := range visible {
		if !r.in[k][namespace] {
			return true
		}
	}
	return false
}

// remove removes the objects that the user may not list, and returns whether there were any.
func remove[T any, P pointer[T]](r *rights, k kind, objects *[]T) bool {
	before := len(*objects)
	*objects = slices.DeleteFunc(*objects, func(object T) bool { return !r.mayList(k, P(&object).GetNamespace()) })
	return len(*objects) < before
}
