// Package cache keeps the objects of a Snapshot in memory.
package cache

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	clientcache "k8s.io/client-go/tools/cache"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/broadcast"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/requirements"
	"akri.sh/libs/inspect/rights"
	"akri.sh/libs/inspect/selector"
	"akri.sh/libs/inspect/timeline"
	"akri.sh/libs/kube"
)

const (
	// probeInterval and probeTimeout limit the time until an API server that does not answer is
	// noticed.
	probeInterval = 2 * time.Second
	probeTimeout  = 3 * time.Second
	// unmetInterval is the time after which a deleted object is noticed that no informer follows.
	unmetInterval = 10 * time.Second

	// recordInterval is the time between two looks at what has happened to devices. It is longer if
	// a look takes long: recordShare times as long. After idleInterval without a change a verdict
	// can have changed because of the time.
	recordInterval = 2 * time.Second
	recordShare    = 50
	idleInterval   = time.Minute
)

// Cache has the objects of a Snapshot in memory, and follows their changes.
type Cache struct {
	server    rest.Interface
	needs     *requirements.Reader
	informers kube.Informers
	// dra are the informers of Dynamic Resource Allocation.
	dra     kube.Optional
	changes broadcast.Value[int]

	configurations *kube.Informer[*akriv0.Configuration]
	instances      *kube.Informer[*akriv0.Instance]
	pods           *kube.Informer[*corev1.Pod]
	jobs           *kube.Informer[*batchv1.Job]
	nodes          *kube.Informer[*corev1.Node]
	daemonSets     *kube.Informer[*appsv1.DaemonSet]
	deployments    *kube.Informer[*appsv1.Deployment]
	webhooks       *kube.Informer[*admissionregistrationv1.ValidatingWebhookConfiguration]
	events         *kube.Informer[*corev1.Event]
	warnings       *kube.Informer[*corev1.Event]
	// claims, templates and resourceSlices are nil if claims are not followed.
	claims         *kube.Informer[*resourcev1.ResourceClaim]
	templates      *kube.Informer[*resourcev1.ResourceClaimTemplate]
	resourceSlices *kube.Informer[*resourcev1.ResourceSlice]
	selectors      explain.Selectors
	// rights has Unreadable and OneNamespace.
	rights    explain.Snapshot
	timelines timeline.Recorder

	mu        sync.Mutex
	unmet     []explain.Requirement
	resources string
	version   int
	health    Health
}

// Health is the state of the connection to the API server.
type Health struct {
	// Problem is empty if the API server answers.
	Problem string
	// Since is the time of the last answer before the Problem.
	Since time.Time
}

// New returns a Cache of what the user may list: the objects of all namespaces, those of the given
// one, or none. It calls the API server to find that out.
func New(ctx context.Context, config *rest.Config, namespace string) (*Cache, error) {
	c, err := build(ctx, config, &rights.Finder{Snapshot: &explain.Snapshot{}, Namespace: namespace}, true)
	if err != nil {
		return nil, err
	}
	if c.unmet, err = c.needs.Unmet(ctx, nil); err != nil {
		return nil, err
	}
	if c.Snapshot().NoAPI() {
		return nil, rights.ErrNoAPI
	}
	return c, nil
}

// NewOfAll returns a Cache of the objects of all namespaces, which the caller may list. It does not
// call the API server. The objects of Dynamic Resource Allocation are among them if claims is true
// and the API server has them.
func NewOfAll(config *rest.Config, claims bool) (*Cache, error) {
	return build(context.Background(), config, nil, claims)
}

// build returns a Cache. Without a finder all objects can be listed.
func build(ctx context.Context, config *rest.Config, finder *rights.Finder, claims bool) (*Cache, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	c := &Cache{health: Health{Since: time.Now()}, selectors: selector.New()}
	b := &builder{ctx: ctx, config: config, cache: c, finder: finder}
	var err error
	if c.server, err = newServer(config); err != nil {
		return nil, err
	}
	c.needs = requirements.NewReader(c.server)
	c.dra.Server, c.dra.Version = c.server, resourcev1.SchemeGroupVersion

	all, partOfAkri := metav1.ListOptions{}, metav1.ListOptions{LabelSelector: explain.PartOfLabel + "=" + explain.PartOf}
	brokers := metav1.ListOptions{LabelSelector: "controller=" + akriv0.Group}
	ofDevices := metav1.ListOptions{FieldSelector: "involvedObject.apiVersion=" + akriv0.GroupVersion.String()}
	core, apps := corev1.SchemeGroupVersion, appsv1.SchemeGroupVersion

	c.configurations = follow[akriv0.Configuration, akriv0.ConfigurationList](b, akriv0.ConfigurationResource, true, all, explain.TrimConfiguration)
	c.instances = follow[akriv0.Instance, akriv0.InstanceList](b, akriv0.InstanceResource, true, all, explain.TrimInstance)
	c.pods = follow[corev1.Pod, corev1.PodList](b, core.WithResource("pods"), true, all, explain.TrimPod)
	c.jobs = follow[batchv1.Job, batchv1.JobList](b, batchv1.SchemeGroupVersion.WithResource("jobs"), true, brokers, explain.TrimJob)

	c.nodes = follow[corev1.Node, corev1.NodeList](b, core.WithResource("nodes"), false, all, explain.TrimNode)
	c.daemonSets = follow[appsv1.DaemonSet, appsv1.DaemonSetList](b, apps.WithResource("daemonsets"), false, partOfAkri, explain.TrimDaemonSet)
	c.deployments = follow[appsv1.Deployment, appsv1.DeploymentList](b, apps.WithResource("deployments"), false, partOfAkri, explain.TrimDeployment)
	webhooks := admissionregistrationv1.SchemeGroupVersion.WithResource("validatingwebhookconfigurations")
	c.webhooks = follow[admissionregistrationv1.ValidatingWebhookConfiguration, admissionregistrationv1.ValidatingWebhookConfigurationList](
		b, webhooks, false, partOfAkri, nil)

	c.events = follow[corev1.Event, corev1.EventList](b, core.WithResource("events"), true, ofDevices, nil)
	warnings := metav1.ListOptions{FieldSelector: "type=" + corev1.EventTypeWarning}
	c.warnings = follow[corev1.Event, corev1.EventList](b, core.WithResource("events"), true, warnings, trimWarning)
	if claims {
		b.followClaims()
	}

	if finder != nil {
		c.rights = *finder.Snapshot
		slices.Sort(c.rights.Unreadable)
	}
	return c, b.err
}

// trimWarning keeps the name of a Warning that is neither about a workload of Akri, nor about a Pod
// or a Node.
func trimWarning(event *corev1.Event) {
	explain.TrimEvent(event)
	if !ofAkri(event) && event.InvolvedObject.Kind != "Pod" && event.InvolvedObject.Kind != "Node" {
		*event = corev1.Event{ObjectMeta: metav1.ObjectMeta{
			Name: event.Name, Namespace: event.Namespace, UID: event.UID, ResourceVersion: event.ResourceVersion,
		}}
	}
}

// ofAkri reports whether the Warning is about a workload of Akri or one of its Pods.
func ofAkri(event *corev1.Event) bool { return strings.HasPrefix(event.InvolvedObject.Name, "akri-") }

// newServer returns a client for the paths of the API server.
func newServer(config *rest.Config) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	return client, nil
}

// builder creates the informers of a Cache.
type builder struct {
	ctx    context.Context
	config *rest.Config
	cache  *Cache
	finder *rights.Finder
	err    error
}

// follow returns an informer, or nil if the user may not list the objects. A short list finds that
// out, because an informer would repeat it without a limit.
func follow[T, L any, P interface {
	*T
	kube.Object
}, PL interface {
	*L
	runtime.Object
}](b *builder, resource schema.GroupVersionResource, namespaced bool, selected metav1.ListOptions, trim func(P)) *kube.Informer[P] {
	if b.err != nil {
		return nil
	}
	client, err := kube.NewClient[T, L, P, PL](b.config, resource)
	if err != nil {
		b.err = err
		return nil
	}

	namespace, found := "", true
	if b.finder != nil {
		found = false
		b.err = b.finder.Find(b.ctx, resource.Resource, namespaced, func(ctx context.Context, in string) error {
			options := selected
			options.Limit = 1
			_, err := client.In(in).List(ctx, options)
			if err == nil {
				namespace, found = in, true
			}
			return err
		})
	}
	if !found {
		return nil
	}

	informer := kube.NewSelectedInformer(client, namespace, selected, nil, trim)
	// The console shows that the API server does not answer. client-go would write a line for each
	// attempt.
	if err := informer.SetWatchErrorHandlerWithContext(func(context.Context, *clientcache.Reflector, error) {}); err != nil {
		b.err = fmt.Errorf("create informer: %w", err)
		return nil
	}
	informer.OnChange(func(string) { b.cache.notify() })
	if resource.Group == resourcev1.GroupName {
		b.cache.dra.Informers = append(b.cache.dra.Informers, informer)
	} else {
		b.cache.informers = append(b.cache.informers, informer)
	}
	return informer
}

// followClaims follows what explains Pods with ResourceClaims.
func (b *builder) followClaims() {
	c, v1, all := b.cache, resourcev1.SchemeGroupVersion, metav1.ListOptions{}
	c.claims = follow[resourcev1.ResourceClaim, resourcev1.ResourceClaimList](b, v1.WithResource("resourceclaims"), true, all, explain.TrimClaim)
	c.templates = follow[resourcev1.ResourceClaimTemplate, resourcev1.ResourceClaimTemplateList](
		b, v1.WithResource("resourceclaimtemplates"), true, all, explain.TrimClaimTemplate)
	ofDriver := metav1.ListOptions{FieldSelector: resourcev1.ResourceSliceSelectorDriver + "=" + akriv0.Driver}
	c.resourceSlices = follow[resourcev1.ResourceSlice, resourcev1.ResourceSliceList](b, v1.WithResource("resourceslices"), false, ofDriver, explain.TrimSlice)
}

// Run follows the changes until ctx ends.
func (c *Cache) Run(ctx context.Context) {
	var running sync.WaitGroup
	running.Go(func() { c.informers.Run(ctx) })
	running.Go(func() { c.dra.Run(ctx) })
	running.Go(func() { wait.UntilWithContext(ctx, c.probe, probeInterval) })
	running.Go(func() {
		if c.Synced(ctx) == nil {
			wait.UntilWithContext(ctx, c.readUnmet, unmetInterval)
		}
	})
	running.Go(func() { c.recordTimelines(ctx) })
	running.Wait()
}

// HasSynced returns whether the Cache is complete.
func (c *Cache) HasSynced() bool { return c.informers.HasSynced() && c.dra.HasSynced() }

// Synced waits until the Cache is complete.
func (c *Cache) Synced(ctx context.Context) error { return kube.WaitForSync(ctx, c) }

// recordTimelines records what happens to devices from when the Cache is complete.
func (c *Cache) recordTimelines(ctx context.Context) {
	if c.Synced(ctx) != nil {
		return // ctx has ended
	}

	for {
		changed, begin := c.Changed(), time.Now()
		if c.timelines.Observe(c.Snapshot(), begin) {
			c.notify()
		}

		pause := time.NewTimer(max(recordInterval, recordShare*time.Since(begin)))
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}

		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-time.After(idleInterval):
		}
	}
}

// Timeline returns what has happened to a device since the Cache is complete.
func (c *Cache) Timeline(namespace, name string) timeline.Timeline {
	return c.timelines.Of(namespace, name)
}

// probe calls the API server. A watch does not show that the API server is away: no event is
// expected.
func (c *Cache) probe(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	c.record(c.server.Get().AbsPath("/version").Do(ctx).Error(), time.Now())
}

func (c *Cache) record(err error, now time.Time) {
	c.mu.Lock()
	old := c.health.Problem
	if err == nil {
		c.health = Health{Since: now}
	} else {
		c.health.Problem = err.Error()
	}
	changed := c.health.Problem != old
	c.mu.Unlock()
	if changed {
		c.notify()
	}
}

// readUnmet reads what Akri needs, and how Pods get devices. While the API server does not answer,
// the last answer stays.
func (c *Cache) readUnmet(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, unmetInterval)
	defer cancel()
	snapshot := c.Snapshot()
	unmet, err := c.needs.Unmet(ctx, snapshot.Needed())
	if err != nil {
		return
	}
	resources, err := c.needs.Resources(ctx, snapshot.ResourcesNamespace())
	if err != nil {
		return
	}

	c.mu.Lock()
	changed := !reflect.DeepEqual(c.unmet, unmet) || c.resources != resources
	c.unmet, c.resources = unmet, resources
	c.mu.Unlock()
	if changed {
		c.notify()
	}
}

func (c *Cache) notify() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version++
	c.changes.Set(c.version)
}

// Changed returns a channel that is closed at the next change.
func (c *Cache) Changed() <-chan struct{} {
	_, changed := c.changes.Get()
	return changed
}

// Health returns the state of the connection to the API server.
func (c *Cache) Health() Health {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.health
}

func (c *Cache) requirements() (unmet []explain.Requirement, resources string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unmet, c.resources
}

// Snapshot returns the objects. Callers must not change them.
func (c *Cache) Snapshot() *explain.Snapshot {
	s := c.rights
	s.Unmet, s.Resources = c.requirements()
	s.Configurations = values(c.configurations, nil)
	s.Instances = values(c.instances, nil)
	s.ResourceClaims = values(c.claims, nil)
	s.ResourceClaimTemplates = values(c.templates, nil)
	s.ResourceSlices = values(c.resourceSlices, nil)
	s.Selectors = c.selectors
	s.Pods = values(c.pods, func(pod *corev1.Pod) bool { return c.isRelevant(&s, pod) })
	s.Jobs = values(c.jobs, nil)
	s.Nodes = values(c.nodes, nil)
	s.DaemonSets = values(c.daemonSets, nil)
	s.Deployments = values(c.deployments, nil)
	s.Webhooks = values(c.webhooks, nil)
	s.Warnings = values(c.warnings, ofAkri)
	s.Unprepared = values(c.warnings, func(event *corev1.Event) bool { return event.Reason == explain.ReasonUnprepared })
	return &s
}

// isRelevant reports whether the Pod is one of Akri, a broker, or has devices or claims of them.
// The Snapshot has the claims.
func (c *Cache) isRelevant(s *explain.Snapshot, pod *corev1.Pod) bool {
	return explain.IsRelevant(pod) || c.claims != nil && c.templates != nil && s.ClaimsDevices(pod)
}

// Events returns the Events about Instances and Configurations, and the Warnings about Nodes and
// about Pods of a Snapshot, the newest first.
func (c *Cache) Events() []corev1.Event {
	claims := &explain.Snapshot{ResourceClaims: values(c.claims, nil), ResourceClaimTemplates: values(c.templates, nil)}
	isShown := func(warning *corev1.Event) bool { return c.isShown(claims, warning) }
	events := append(values(c.events, nil), values(c.warnings, isShown)...)
	slices.SortFunc(events, func(a, b corev1.Event) int {
		return cmp.Or(explain.EventTime(&b).Compare(explain.EventTime(&a)), cmp.Compare(b.Name, a.Name))
	})
	return events
}

// isShown reports whether the Warning is about a Node or about a Pod of a Snapshot with the claims.
func (c *Cache) isShown(claims *explain.Snapshot, warning *corev1.Event) bool {
	object := warning.InvolvedObject
	if object.Kind != "Pod" || c.pods == nil {
		return object.Kind == "Node"
	}
	pod, found := c.pods.Get(object.Namespace + "/" + object.Name)
	return found && c.isRelevant(claims, pod)
}

// values returns the objects of an informer, ordered by namespace and name.
func values[T any, P interface {
	*T
	kube.Object
}](informer *kube.Informer[P], keep func(P) bool) []T {
	if informer == nil {
		return nil
	}
	objects := informer.List()
	slices.SortFunc(objects, func(a, b P) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	found := make([]T, 0, len(objects))
	for _, object := range objects {
		if keep == nil || keep(object) {
			found = append(found, *object)
		}
	}
	return found
}
