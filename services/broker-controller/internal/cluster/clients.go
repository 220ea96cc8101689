// Package cluster reads and writes API objects: typed clients, caches of the objects that decisions
// depend on, and Events.
package cluster

import (
	"context"
	"encoding/json"
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
)

// Clients has a client for each kind of object.
type Clients struct {
	Instances      *kube.Client[*akriv0.Instance, *akriv0.InstanceList]
	Configurations *kube.Client[*akriv0.Configuration, *akriv0.ConfigurationList]
	Pods           *kube.Client[*corev1.Pod, *corev1.PodList]
	Jobs           *kube.Client[*batchv1.Job, *batchv1.JobList]
	Services       *kube.Client[*corev1.Service, *corev1.ServiceList]
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
func NewClients(config *rest.Config) (clients Clients, err error) {
	if clients.Instances, err = kube.Instances(config); err != nil {
		return clients, err
	}
	if clients.Configurations, err = kube.Configurations(config); err != nil {
		return clients, err
	}
	core := corev1.SchemeGroupVersion
	if clients.Pods, err = kube.NewClient[corev1.Pod, corev1.PodList](config, core.WithResource("pods"), corev1.AddToScheme); err != nil {
		return clients, err
	}
	if clients.Services, err = kube.NewClient[corev1.Service, corev1.ServiceList](config, core.WithResource("services"), corev1.AddToScheme); err != nil {
		return clients, err
	}
	jobs := batchv1.SchemeGroupVersion.WithResource("jobs")
	if clients.Jobs, err = kube.NewClient[batchv1.Job, batchv1.JobList](config, jobs, batchv1.AddToScheme); err != nil {
		return clients, err
	}
	plain := rest.CopyConfig(config)
	plain.NegotiatedSerializer = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()
	if clients.REST, err = rest.UnversionedRESTClientFor(plain); err != nil {
		return clients, fmt.Errorf("create client for the OpenAPI schema: %w", err)
	}
	return clients, nil
}
