// Package cluster reads and writes API objects: typed clients, caches of the objects that decisions
// depend on, and Events.
package cluster

import (
	"context"
	"encoding/json"
	"errors"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
)

// DeviceClasses is the resource of Dynamic Resource Allocation.
var DeviceClasses = schema.GroupVersionResource{Group: "resource.k8s.io", Version: "v1", Resource: "deviceclasses"}

// Clients has a client for each kind of object.
type Clients struct {
	Instances      *kube.Client[*akriv0.Instance, *akriv0.InstanceList]
	Configurations *kube.Client[*akriv0.Configuration, *akriv0.ConfigurationList]
	Pods           *kube.Client[*corev1.Pod, *corev1.PodList]
	Jobs           *kube.Client[*batchv1.Job, *batchv1.JobList]
	Services       *kube.Client[*corev1.Service, *corev1.ServiceList]
	Nodes          *kube.Client[*corev1.Node, *corev1.NodeList]
	DaemonSets     *kube.Client[*appsv1.DaemonSet, *appsv1.DaemonSetList]
	Deployments    *kube.Client[*appsv1.Deployment, *appsv1.DeploymentList]
	Events         *kube.Client[*corev1.Event, *corev1.EventList]
	Leases         *kube.Client[*coordinationv1.Lease, *coordinationv1.LeaseList]
	// DeviceClasses reads only metadata.
	DeviceClasses *kube.Client[*metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList]
	// REST reads paths that are not resources.
	REST rest.Interface
}

// RawConfiguration reads a Configuration. It also returns its JSON, which has fields that the Go
// type does not have.
func (c Clients) RawConfiguration(ctx context.Context, namespace, name string) (*akriv0.Configuration, []byte, error) {
	path := []string{"/apis", akriv0.GroupVersion.Group, akriv0.GroupVersion.Version, "namespaces", namespace, akriv0.ConfigurationResource.Resource, name}
	text, err := c.REST.Get().AbsPath(path...).Do(ctx).Raw()
	if err != nil {
		return nil, nil, err
	}
	configuration := &akriv0.Configuration{}
	if err := json.Unmarshal(text, configuration); err != nil {
		return nil, nil, err
	}
	return configuration, text, nil
}

// NewClients returns the clients. It sends no request.
func NewClients(config *rest.Config) (Clients, error) {
	instances, instancesErr := kube.Instances(config)
	configurations, configurationsErr := kube.Configurations(config)
	core, batch, apps := corev1.SchemeGroupVersion, batchv1.SchemeGroupVersion, appsv1.SchemeGroupVersion
	pods, podsErr := kube.NewClient[corev1.Pod, corev1.PodList](config, core.WithResource("pods"))
	services, servicesErr := kube.NewClient[corev1.Service, corev1.ServiceList](config, core.WithResource("services"))
	jobs, jobsErr := kube.NewClient[batchv1.Job, batchv1.JobList](config, batch.WithResource("jobs"))
	nodes, nodesErr := kube.NewClient[corev1.Node, corev1.NodeList](config, core.WithResource("nodes"))
	daemonSets, daemonSetsErr := kube.NewClient[appsv1.DaemonSet, appsv1.DaemonSetList](config, apps.WithResource("daemonsets"))
	deployments, deploymentsErr := kube.NewClient[appsv1.Deployment, appsv1.DeploymentList](config, apps.WithResource("deployments"))
	events, eventsErr := kube.NewClient[corev1.Event, corev1.EventList](config, core.WithResource("events"))
	leases, leasesErr := kube.NewClient[coordinationv1.Lease, coordinationv1.LeaseList](
		config, coordinationv1.SchemeGroupVersion.WithResource("leases"))
	classes, classesErr := kube.NewMetadataClient(config, DeviceClasses, "DeviceClass")
	plain := rest.CopyConfig(config)
	plain.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	schema, schemaErr := rest.UnversionedRESTClientFor(plain)
	return Clients{instances, configurations, pods, jobs, services, nodes, daemonSets, deployments, events, leases, classes, schema},
		errors.Join(instancesErr, configurationsErr, podsErr, servicesErr, jobsErr, nodesErr, daemonSetsErr, deploymentsErr, eventsErr, leasesErr, classesErr, schemaErr)
}
