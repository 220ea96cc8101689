// Package cluster lists the objects of a Snapshot.
package cluster

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/requirements"
	"akri.sh/libs/inspect/rights"
	"akri.sh/libs/kube"
	"akri.sh/libs/version"
)

// Client reads a cluster with the rights of the user.
type Client struct {
	Kubernetes     kubernetes.Interface
	Configurations *kube.Client[*akriv0.Configuration, *akriv0.ConfigurationList]
	Instances      *kube.Client[*akriv0.Instance, *akriv0.InstanceList]

	server *serverClock
}

// New returns a client. The API server limits its requests, not the client.
func New(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.UserAgent = "kubectl-akri/" + version.Version
	c := &Client{server: &serverClock{}}
	config.Wrap(c.server.wrap)
	var err error
	if c.Configurations, err = kube.Configurations(config); err != nil {
		return nil, err
	}
	if c.Instances, err = kube.Instances(config); err != nil {
		return nil, err
	}
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	if c.Kubernetes, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	return c, nil
}

// FromCache are the options of a list that the API server answers from memory.
func FromCache() metav1.ListOptions { return metav1.ListOptions{ResourceVersion: "0"} }

// Snapshot lists what explanations need. If the user may not list the objects of all namespaces, it
// lists those of the given one.
func (c *Client) Snapshot(ctx context.Context, namespace string) (*explain.Snapshot, error) {
	s := &explain.Snapshot{}
	finder := &rights.Finder{Snapshot: s, Namespace: namespace}
	all, ofAkri := metav1.ListOptions{}, metav1.ListOptions{LabelSelector: explain.PartOfLabel + "=" + explain.PartOf}
	core, apps := c.Kubernetes.CoreV1(), c.Kubernetes.AppsV1()
	l := newLister(ctx, finder)
	list(l, "configurations", true, c.Configurations.In, all, &s.Configurations)
	list(l, "instances", true, c.Instances.In, all, &s.Instances)
	list(l, "pods", true, core.Pods, all, &s.Pods)
	list(l, "jobs", true, c.Kubernetes.BatchV1().Jobs, metav1.ListOptions{LabelSelector: "controller=" + akriv0.Group}, &s.Jobs)
	list(l, "nodes", false, clusterScoped(core.Nodes), all, &s.Nodes)
	list(l, "daemonsets", false, apps.DaemonSets, ofAkri, &s.DaemonSets)
	list(l, "deployments", false, apps.Deployments, ofAkri, &s.Deployments)
	webhooks := c.Kubernetes.AdmissionregistrationV1().ValidatingWebhookConfigurations
	list(l, "validatingwebhookconfigurations", false, clusterScoped(webhooks), ofAkri, &s.Webhooks)
	if err := l.group.Wait(); err != nil {
		return nil, err
	}
	s.Now = c.server.now()

	var err error
	reader := requirements.NewReader(c.Kubernetes.Discovery().RESTClient())
	if s.Unmet, err = reader.Unmet(ctx, s.Needed()); err != nil {
		return nil, err
	}
	if s.Resources, err = reader.Resources(ctx, s.ResourcesNamespace()); err != nil {
		return nil, fmt.Errorf("read how Pods get devices: %w", err)
	}
	if err := c.listWarnings(ctx, finder); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(s.Pods, func(pod corev1.Pod) bool { return explain.HasClaims(&pod) }) {
		if err := c.listClaims(ctx, finder); err != nil {
			return nil, err
		}
	}
	if !s.OneNamespace && !slices.Contains(s.Unreadable, "pods") {
		s.Requested = explain.RequestedOn(s.Pods)
	}
	s.Pods = slices.DeleteFunc(s.Pods, func(pod corev1.Pod) bool { return !explain.IsRelevant(&pod) && !s.ClaimsDevices(&pod) })
	slices.Sort(s.Unreadable)
	return s, nil
}

// listWarnings lists the Warning Events in the namespaces of Akri.
func (c *Client) listWarnings(ctx context.Context, finder *rights.Finder) error {
	s := finder.Snapshot
	l := newLister(ctx, finder)
	warnings := metav1.ListOptions{FieldSelector: "type=" + corev1.EventTypeWarning}
	namespaces := s.Namespaces()
	found := make([][]corev1.Event, len(namespaces))
	for i, namespace := range namespaces {
		in := func(string) typedcorev1.EventInterface { return c.Kubernetes.CoreV1().Events(namespace) }
		list(l, "events", false, in, warnings, &found[i])
	}
	err := l.group.Wait()
	s.Warnings = slices.Concat(found...)
	return err
}

// listClaims lists what explains Pods with ResourceClaims.
func (c *Client) listClaims(ctx context.Context, finder *rights.Finder) error {
	s, resources := finder.Snapshot, c.Kubernetes.ResourceV1()
	l := newLister(ctx, finder)
	all, ofDriver := metav1.ListOptions{}, metav1.ListOptions{FieldSelector: resourcev1.ResourceSliceSelectorDriver + "=" + akriv0.Driver}
	list(l, "resourceclaims", true, resources.ResourceClaims, all, &s.ResourceClaims)
	list(l, "resourceclaimtemplates", true, resources.ResourceClaimTemplates, all, &s.ResourceClaimTemplates)
	list(l, "resourceslices", false, clusterScoped(resources.ResourceSlices), ofDriver, &s.ResourceSlices)
	unprepared := metav1.ListOptions{FieldSelector: "reason=" + explain.ReasonUnprepared}
	list(l, "events", true, c.Kubernetes.CoreV1().Events, unprepared, &s.Unprepared)
	return l.group.Wait()
}

// lister lists several kinds of objects at once.
type lister struct {
	ctx    context.Context
	group  *errgroup.Group
	finder *rights.Finder
}

func newLister(ctx context.Context, finder *rights.Finder) *lister {
	group, ctx := errgroup.WithContext(ctx)
	return &lister{ctx, group, finder}
}

// list lists the objects of one kind with the client of a namespace.
func list[T any, L runtime.Object, C interface {
	List(ctx context.Context, options metav1.ListOptions) (L, error)
}](l *lister, resource string, namespaced bool, in func(namespace string) C, options metav1.ListOptions, to *[]T) {
	options.ResourceVersion = FromCache().ResourceVersion
	l.group.Go(func() error {
		return l.finder.Find(l.ctx, resource, namespaced, func(ctx context.Context, namespace string) error {
			list, err := in(namespace).List(ctx, options)
			if err != nil {
				return err
			}
			items, err := meta.GetItemsPtr(list)
			if err == nil {
				*to = *items.(*[]T)
			}
			return err
		})
	})
}

func clusterScoped[C any](client func() C) func(string) C { return func(string) C { return client() } }

// ErrNoAPI means that the cluster does not have the API of Akri.
var ErrNoAPI = rights.ErrNoAPI
