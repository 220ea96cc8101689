// Package cluster lists the objects of a Snapshot.
package cluster

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/rights"
	"akri.sh/libs/kube"
	"akri.sh/libs/version"
)

// Client reads a cluster with the rights of the user.
type Client struct {
	Kubernetes     kubernetes.Interface
	Configurations *kube.Client[*akriv0.Configuration, *akriv0.ConfigurationList]
	Instances      *kube.Client[*akriv0.Instance, *akriv0.InstanceList]
}

// New returns a client. The API server limits its requests, not the client.
func New(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.UserAgent = "kubectl-akri/" + version.Version
	c := &Client{}
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

func ofAkri() metav1.ListOptions {
	options := FromCache()
	options.LabelSelector = explain.PartOfLabel + "=" + explain.PartOf
	return options
}

// Snapshot lists what explanations need. If the user may not list the objects of all namespaces, it
// lists those of the given one.
func (c *Client) Snapshot(ctx context.Context, namespace string) (*explain.Snapshot, error) {
	l := rights.Finder{Snapshot: &explain.Snapshot{}, Namespace: namespace}
	group, groupCtx := errgroup.WithContext(ctx)
	list := func(resource string, namespaced bool, read func(ctx context.Context, namespace string) error) {
		group.Go(func() error { return l.Find(groupCtx, resource, namespaced, read) })
	}
	s := l.Snapshot
	list("configurations", true, func(ctx context.Context, namespace string) error {
		list, err := c.Configurations.In(namespace).List(ctx, FromCache())
		if err == nil {
			s.Configurations = list.Items
		}
		return err
	})
	list("instances", true, func(ctx context.Context, namespace string) error {
		list, err := c.Instances.In(namespace).List(ctx, FromCache())
		if err == nil {
			s.Instances = list.Items
		}
		return err
	})
	list("pods", true, func(ctx context.Context, namespace string) error {
		list, err := c.Kubernetes.CoreV1().Pods(namespace).List(ctx, FromCache())
		if err == nil {
			s.Pods = slices.DeleteFunc(list.Items, func(pod corev1.Pod) bool { return !explain.IsRelevant(&pod) && !explain.HasClaims(&pod) })
		}
		return err
	})
	list("jobs", true, func(ctx context.Context, namespace string) error {
		options := FromCache()
		options.LabelSelector = "controller=" + akriv0.Group
		list, err := c.Kubernetes.BatchV1().Jobs(namespace).List(ctx, options)
		s.Jobs = items(list, err, func(list *batchv1.JobList) []batchv1.Job { return list.Items })
		return err
	})
	list("nodes", false, func(ctx context.Context, _ string) error {
		list, err := c.Kubernetes.CoreV1().Nodes().List(ctx, FromCache())
		s.Nodes = items(list, err, func(list *corev1.NodeList) []corev1.Node { return list.Items })
		return err
	})
	c.listWorkloads(s, list)
	if err := group.Wait(); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(s.Pods, func(pod corev1.Pod) bool { return explain.HasClaims(&pod) }) {
		if err := c.listClaims(ctx, &l); err != nil {
			return nil, err
		}
	}
	s.Pods = slices.DeleteFunc(s.Pods, func(pod corev1.Pod) bool { return !explain.IsRelevant(&pod) && !s.ClaimsDevices(&pod) })
	slices.Sort(s.Unreadable)
	return s, nil
}

// listClaims lists what explains Pods with ResourceClaims. A cluster without this version of the
// API has none.
func (c *Client) listClaims(ctx context.Context, l *rights.Finder) error {
	s := l.Snapshot
	group, ctx := errgroup.WithContext(ctx)
	list := func(resource string, namespaced bool, read func(ctx context.Context, namespace string) error) {
		group.Go(func() error {
			return l.Find(ctx, resource, namespaced, func(ctx context.Context, namespace string) error {
				err := read(ctx, namespace)
				if apierrors.IsNotFound(err) {
					return nil
				}
				return err
			})
		})
	}
	list("resourceclaims", true, func(ctx context.Context, namespace string) error {
		list, err := c.Kubernetes.ResourceV1().ResourceClaims(namespace).List(ctx, FromCache())
		s.ResourceClaims = items(list, err, func(list *resourcev1.ResourceClaimList) []resourcev1.ResourceClaim { return list.Items })
		return err
	})
	list("resourceclaimtemplates", true, func(ctx context.Context, namespace string) error {
		list, err := c.Kubernetes.ResourceV1().ResourceClaimTemplates(namespace).List(ctx, FromCache())
		s.ResourceClaimTemplates = items(list, err, func(list *resourcev1.ResourceClaimTemplateList) []resourcev1.ResourceClaimTemplate { return list.Items })
		return err
	})
	list("resourceslices", false, func(ctx context.Context, _ string) error {
		options := FromCache()
		options.FieldSelector = resourcev1.ResourceSliceSelectorDriver + "=" + akriv0.Driver
		list, err := c.Kubernetes.ResourceV1().ResourceSlices().List(ctx, options)
		s.ResourceSlices = items(list, err, func(list *resourcev1.ResourceSliceList) []resourcev1.ResourceSlice { return list.Items })
		return err
	})
	list("events", true, func(ctx context.Context, namespace string) error {
		options := FromCache()
		options.FieldSelector = "reason=FailedPrepareDynamicResources"
		list, err := c.Kubernetes.CoreV1().Events(namespace).List(ctx, options)
		s.Unprepared = items(list, err, func(list *corev1.EventList) []corev1.Event { return list.Items })
		return err
	})
	return group.Wait()
}

// listWorkloads lists Akri's own objects.
func (c *Client) listWorkloads(s *explain.Snapshot, list func(string, bool, func(context.Context, string) error)) {
	list("daemonsets", false, func(ctx context.Context, _ string) error {
		list, err := c.Kubernetes.AppsV1().DaemonSets("").List(ctx, ofAkri())
		s.DaemonSets = items(list, err, func(list *appsv1.DaemonSetList) []appsv1.DaemonSet { return list.Items })
		return err
	})
	list("deployments", false, func(ctx context.Context, _ string) error {
		list, err := c.Kubernetes.AppsV1().Deployments("").List(ctx, ofAkri())
		s.Deployments = items(list, err, func(list *appsv1.DeploymentList) []appsv1.Deployment { return list.Items })
		return err
	})
	list("validatingwebhookconfigurations", false, func(ctx context.Context, _ string) error {
		list, err := c.Kubernetes.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(ctx, ofAkri())
		s.Webhooks = items(list, err, func(list *admissionregistrationv1.ValidatingWebhookConfigurationList) []admissionregistrationv1.ValidatingWebhookConfiguration {
			return list.Items
		})
		return err
	})
}

func items[L, T any](list L, err error, of func(L) []T) []T {
	if err != nil {
		return nil
	}
	return of(list)
}

// ErrNoAPI means that the cluster does not have the API of Akri.
var ErrNoAPI = rights.ErrNoAPI
