// Package kube reads and writes API objects with client-go's generic clients and informers. The
// typed clientset is not used because it keeps the types of all API groups in memory (18 MiB).
package kube

import (
	"fmt"
	"reflect"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/version"
)

// Flags select the API server. Embed them in the Config of a service.
type Flags struct {
	Kubeconfig string `help:"Kubeconfig file. Empty: the service account of the Pod." placeholder:"FILE"`

	// REST replaces the kubeconfig and the service account, in tests and in programs that embed the
	// service.
	REST *rest.Config `kong:"-"`
}

// RESTConfig returns REST, or loads the kubeconfig or the service account of the Pod and sends
// client-go's messages to the logger. Requests are not limited on the client side, because API
// priority and fairness limits them on the server: with client-go's default of 5 requests a second,
// 100 Instances would take 18 s.
func (f Flags) RESTConfig(log *zap.Logger) (*rest.Config, error) {
	if f.REST != nil {
		return f.REST, nil
	}
	klog.SetLogger(zapr.NewLogger(log)) // client-go logs through klog
	load := rest.InClusterConfig
	if f.Kubeconfig != "" {
		load = func() (*rest.Config, error) { return clientcmd.BuildConfigFromFlags("", f.Kubeconfig) }
	}
	config, err := load()
	if err != nil {
		return nil, fmt.Errorf("load API server access: %w", err)
	}
	config.QPS = -1
	config.UserAgent = "akri/" + version.Version
	return config, nil
}

// Object is a pointer to an API type.
type Object interface {
	runtime.Object
	metav1.Object
}

// Client reads and writes one kind of object, in any namespace.
type Client[T Object, L runtime.Object] struct {
	rest     rest.Interface
	resource schema.GroupVersionResource
	codec    runtime.ParameterCodec
	newItem  func() T
	newList  func() L
}

// pointer and listPointer are the pointers to an API type and its list. They are inferred.
type (
	pointer[T any] interface {
		*T
		Object
	}
	listPointer[L any] interface {
		*L
		runtime.Object
	}
)

// NewClient returns a client for one resource with objects of type T in lists of type L, whose
// names are the kinds.
func NewClient[T, L any, PT pointer[T], PL listPointer[L]](
	config *rest.Config, resource schema.GroupVersionResource,
) (*Client[PT, PL], error) {
	return newClient[T, L, PT, PL](config, resource, reflect.TypeFor[T]().Name(), reflect.TypeFor[L]().Name())
}

// NewMetadataClient returns a client that decodes the metadata of objects of the kind and ignores
// the rest.
func NewMetadataClient(
	config *rest.Config, resource schema.GroupVersionResource, kind string,
) (*Client[*metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList], error) {
	return newClient[metav1.PartialObjectMetadata, metav1.PartialObjectMetadataList](config, resource, kind, kind+"List")
}

func newClient[T, L any, PT pointer[T], PL listPointer[L]](
	config *rest.Config, resource schema.GroupVersionResource, kind, listKind string,
) (*Client[PT, PL], error) {
	groupVersion := resource.GroupVersion()
	// The types of the whole group would need some ten kilobytes in each client.
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(groupVersion.WithKind(kind), PT(new(T)))
	scheme.AddKnownTypeWithName(groupVersion.WithKind(listKind), PL(new(L)))
	metav1.AddToGroupVersion(scheme, groupVersion)

	own := rest.CopyConfig(config)
	own.GroupVersion = &groupVersion
	own.APIPath = "/apis"
	if resource.Group == "" {
		own.APIPath = "/api"
	}
	own.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	if resource.Group != akriv0.Group { // custom resources have JSON only
		own.ContentType = runtime.ContentTypeProtobuf
		own.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	}

	client, err := rest.RESTClientFor(own)
	if err != nil {
		return nil, fmt.Errorf("create client for %s: %w", resource.Resource, err)
	}
	return &Client[PT, PL]{
		rest: client, resource: resource, codec: runtime.NewParameterCodec(scheme),
		newItem: func() PT { return new(T) }, newList: func() PL { return new(L) },
	}, nil
}

// In returns the client for one namespace. Empty means all namespaces, or a cluster-scoped
// resource.
func (c *Client[T, L]) In(namespace string) *gentype.ClientWithList[T, L] {
	return gentype.NewClientWithList(c.resource.Resource, c.rest, c.codec, namespace, c.newItem, c.newList)
}

// Configurations returns a client for Configurations.
func Configurations(config *rest.Config) (*Client[*akriv0.Configuration, *akriv0.ConfigurationList], error) {
	return NewClient[akriv0.Configuration, akriv0.ConfigurationList](config, akriv0.ConfigurationResource)
}

// Instances returns a client for Instances.
func Instances(config *rest.Config) (*Client[*akriv0.Instance, *akriv0.InstanceList], error) {
	return NewClient[akriv0.Instance, akriv0.InstanceList](config, akriv0.InstanceResource)
}

// Nodes returns a client for Nodes.
func Nodes(config *rest.Config) (*Client[*corev1.Node, *corev1.NodeList], error) {
	return NewClient[corev1.Node, corev1.NodeList](config, corev1.SchemeGroupVersion.WithResource("nodes"))
}

// Secrets returns a client for Secrets.
func Secrets(config *rest.Config) (*Client[*corev1.Secret, *corev1.SecretList], error) {
	return NewClient[corev1.Secret, corev1.SecretList](config, corev1.SchemeGroupVersion.WithResource("secrets"))
}
