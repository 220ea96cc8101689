// Package objects lists and deletes the API objects of Akri.
package objects

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
)

// Kind is a kind of objects that Akri creates.
type Kind struct {
	name     string
	resource schema.GroupVersionResource
	selector string
}

const (
	createdByAkri = "controller=" + akriv0.Group
	// brokerController is the Deployment of broker-controller, whose name is upstream Akri's.
	brokerController = "akri-controller-deployment"
)

// leaseNames are the Leases of leader elections. Helm does not delete them, because the controllers
// create them. A controller of the next installation would wait until they expire.
var leaseNames = []string{"akri-broker-controller", "akri-dra-controller"}

var (
	configuration = Kind{"Configuration", akriv0.ConfigurationResource, ""}
	instance      = Kind{"Instance", akriv0.InstanceResource, ""}
	pod           = Kind{"Pod", corev1.SchemeGroupVersion.WithResource("pods"), createdByAkri}
	job           = Kind{"Job", batchv1.SchemeGroupVersion.WithResource("jobs"), createdByAkri}
	svc           = Kind{"Service", corev1.SchemeGroupVersion.WithResource("services"), createdByAkri}
	lease         = Kind{"Lease", coordinationv1.SchemeGroupVersion.WithResource("leases"), ""}
	deployment    = Kind{"Deployment", appsv1.SchemeGroupVersion.WithResource("deployments"), ""}

	// Kinds in the order of deletion: a Job would create its Pods again, and Instances own the
	// others.
	Kinds = []Kind{job, pod, svc, instance}
	// Brokers are the kinds of brokers, in the order of deletion.
	Brokers = []Kind{job, pod}
)

// Object is an object of a Kind. Only its metadata is read.
type Object struct {
	kind     Kind
	metadata *metav1.PartialObjectMetadata
}

// String returns the kind, namespace and name.
func (o Object) String() string {
	return fmt.Sprintf("%s %s/%s", o.kind.name, o.metadata.Namespace, o.metadata.Name)
}

// UID returns the UID of the object.
func (o Object) UID() types.UID { return o.metadata.UID }

// Ending reports whether the object is a Pod that the kubelet removes after its grace period. On a
// lost node it never does.
func (o Object) Ending() bool {
	return o.kind == pod && o.metadata.DeletionTimestamp != nil && len(o.metadata.Finalizers) == 0
}

// Count returns the number of objects of each of the kinds.
func Count(objects []Object, kinds []Kind) string {
	var counts []string
	for _, kind := range slices.Backward(kinds) {
		count := 0
		for _, object := range objects {
			if object.kind == kind {
				count++
			}
		}
		counts = append(counts, fmt.Sprintf("%ss: %d", kind.name, count))
	}
	return strings.Join(counts, ", ")
}

type metadataClient = kube.Client[*metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList]

// Client lists and deletes objects in all namespaces.
type Client struct{ clients map[Kind]*metadataClient }

// NewClient returns a Client. It sends no request.
func NewClient(config *rest.Config) (c *Client, err error) {
	c = &Client{clients: map[Kind]*metadataClient{}}
	for _, k := range append([]Kind{configuration, lease, deployment}, Kinds...) {
		if c.clients[k], err = kube.NewMetadataClient(config, k.resource, k.name); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// List returns the objects of a kind that Akri created.
func (c *Client) List(ctx context.Context, k Kind) ([]Object, error) {
	return c.list(ctx, k, k.selector)
}

// Pods returns the Pods that match a label selector.
func (c *Client) Pods(ctx context.Context, selector string) ([]Object, error) {
	return c.list(ctx, pod, selector)
}

// list returns no objects if the cluster does not have the kind.
func (c *Client) list(ctx context.Context, k Kind, selector string) ([]Object, error) {
	list, err := c.clients[k].In(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", k.resource.Resource, err)
	}
	objects := make([]Object, 0, len(list.Items))
	for i := range list.Items {
		objects = append(objects, Object{k, &list.Items[i]})
	}
	return objects, nil
}

// Delete removes upstream Akri's finalizers from an object and deletes it. It returns no error if
// the object is gone.
func (c *Client) Delete(ctx context.Context, object Object) error {
	if _, err := c.removeFinalizers(ctx, object); err != nil {
		return err
	}
	metadata := object.metadata
	if metadata.DeletionTimestamp != nil {
		return nil
	}
	background := metav1.DeletePropagationBackground
	client := c.clients[object.kind].In(metadata.Namespace)
	err := client.Delete(ctx, metadata.Name, metav1.DeleteOptions{PropagationPolicy: &background})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s: %w", object, err)
	}
	return nil
}

// DeleteBrokerController deletes the Deployment of the broker-controller of a release. It returns
// no error if there is none, or if the Deployment is not part of the release.
func (c *Client) DeleteBrokerController(ctx context.Context, namespace, release string) error {
	found, err := c.clients[deployment].In(namespace).Get(ctx, brokerController, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("get Deployment %s/%s: %w", namespace, brokerController, err)
	}
	if found.Labels["app.kubernetes.io/instance"] != release {
		return nil
	}
	return c.Delete(ctx, Object{deployment, found})
}

// DeleteLeases deletes the Leases of leader elections. It returns no error for a Lease that is
// gone.
func (c *Client) DeleteLeases(ctx context.Context, namespace string) error {
	for _, name := range leaseNames {
		err := c.clients[lease].In(namespace).Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete Lease %s/%s: %w", namespace, name, err)
		}
	}
	return nil
}

// ResetConfigurations removes upstream Akri's finalizers and the status from all Configurations,
// because no service updates them. onFinalizers is called for each Configuration that had such
// finalizers.
func (c *Client) ResetConfigurations(ctx context.Context, onFinalizers func(configuration string)) error {
	configurations, err := c.List(ctx, configuration)
	if err != nil {
		return err
	}
	for _, object := range configurations {
		if err := c.patch(ctx, object, []byte(`{"status":null}`), "status"); err != nil {
			return fmt.Errorf("clear status of %s: %w", object, err)
		}
		object.metadata.ResourceVersion = "" // the previous patch changed it
		removed, err := c.removeFinalizers(ctx, object)
		if err != nil {
			return err
		}
		if removed {
			onFinalizers(object.metadata.Namespace + "/" + object.metadata.Name)
		}
	}
	return nil
}

// removeFinalizers removes upstream Akri's finalizers and returns whether there were any. If the
// object has a resourceVersion, it fails after a concurrent change.
func (c *Client) removeFinalizers(ctx context.Context, object Object) (removed bool, err error) {
	patch := akriv0.AgentFinalizersPatch(object.metadata)
	if patch == nil {
		return false, nil
	}
	if err := c.patch(ctx, object, patch); err != nil {
		return false, fmt.Errorf("remove finalizers from %s: %w", object, err)
	}
	return true, nil
}

// patch returns no error if the object is gone.
func (c *Client) patch(ctx context.Context, object Object, patch []byte, subresources ...string) error {
	client := c.clients[object.kind].In(object.metadata.Namespace)
	_, err := client.Patch(ctx, object.metadata.Name, types.MergePatchType, patch, metav1.PatchOptions{}, subresources...)
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
