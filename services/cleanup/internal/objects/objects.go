// Package objects lists and deletes the API objects of Akri.
package objects

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	// leaseName is the Lease of the broker-controller's leader election. Helm does not delete it,
	// because the controller creates it.
	leaseName = "akri-broker-controller"

	createdByAkri = "controller=" + akriv0.Group
)

var (
	instance = Kind{"Instance", akriv0.InstanceResource, ""}
	pod      = Kind{"Pod", corev1.SchemeGroupVersion.WithResource("pods"), createdByAkri}
	job      = Kind{"Job", batchv1.SchemeGroupVersion.WithResource("jobs"), createdByAkri}
	svc      = Kind{"Service", corev1.SchemeGroupVersion.WithResource("services"), createdByAkri}
	lease    = Kind{"Lease", coordinationv1.SchemeGroupVersion.WithResource("leases"), ""}

	// Kinds in the order of deletion: a Job would create its Pods again, and Instances own the
	// others.
	Kinds = []Kind{job, pod, svc, instance}
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

// Count returns the number of objects of each kind.
func Count(objects []Object) string {
	var counts []string
	for _, kind := range slices.Backward(Kinds) {
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
type Client struct {
	clients        map[Kind]*metadataClient
	configurations *kube.Client[*akriv0.Configuration, *akriv0.ConfigurationList]
}

// NewClient returns a Client. It sends no request.
func NewClient(config *rest.Config) (*Client, error) {
	configurations, err := kube.Configurations(config)
	if err != nil {
		return nil, err
	}
	c := &Client{clients: map[Kind]*metadataClient{}, configurations: configurations}
	for _, k := range append([]Kind{lease}, Kinds...) {
		if c.clients[k], err = newMetadataClient(config, k); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// newMetadataClient decodes objects as metadata and ignores the rest.
func newMetadataClient(config *rest.Config, k Kind) (*metadataClient, error) {
	add := func(scheme *runtime.Scheme) error {
		version := k.resource.GroupVersion()
		scheme.AddKnownTypeWithName(version.WithKind(k.name), &metav1.PartialObjectMetadata{})
		scheme.AddKnownTypeWithName(version.WithKind(k.name+"List"), &metav1.PartialObjectMetadataList{})
		metav1.AddToGroupVersion(scheme, version)
		return nil
	}
	return kube.NewClient(config, k.resource, add,
		func() *metav1.PartialObjectMetadata { return &metav1.PartialObjectMetadata{} },
		func() *metav1.PartialObjectMetadataList { return &metav1.PartialObjectMetadataList{} })
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
	client, metadata := c.clients[object.kind].In(object.metadata.Namespace), object.metadata
	if patch := finalizersPatch(metadata); patch != nil {
		_, err := client.Patch(ctx, metadata.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove finalizers from %s: %w", object, err)
		}
	}
	if metadata.DeletionTimestamp != nil {
		return nil
	}
	background := metav1.DeletePropagationBackground
	err := client.Delete(ctx, metadata.Name, metav1.DeleteOptions{PropagationPolicy: &background})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s: %w", object, err)
	}
	return nil
}

// DeleteLease deletes the Lease of the broker-controller. It returns no error if the Lease is gone.
func (c *Client) DeleteLease(ctx context.Context, namespace string) error {
	err := c.clients[lease].In(namespace).Delete(ctx, leaseName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Lease %s/%s: %w", namespace, leaseName, err)
	}
	return nil
}

// ResetConfigurations removes upstream Akri's finalizers and the status from all Configurations,
// because no service updates them. onFinalizers is called for each Configuration that had such
// finalizers.
func (c *Client) ResetConfigurations(ctx context.Context, onFinalizers func(configuration string)) error {
	list, err := c.configurations.In(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list configurations: %w", err)
	}
	for i := range list.Items {
		configuration := &list.Items[i]
		key := configuration.Namespace + "/" + configuration.Name
		client := c.configurations.In(configuration.Namespace)
		patch := []byte(`{"status":null}`)
		_, err := client.Patch(ctx, configuration.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("clear status of Configuration %s: %w", key, err)
		}
		configuration.ResourceVersion = "" // the previous patch changed it
		if patch = finalizersPatch(configuration); patch == nil {
			continue
		}
		_, err = client.Patch(ctx, configuration.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove finalizers from Configuration %s: %w", key, err)
		}
		onFinalizers(key)
	}
	return nil
}

// finalizersPatch returns a merge patch that removes upstream Akri's finalizers, or nil if there
// are none. If the object has a resourceVersion, the patch fails after a concurrent change.
func finalizersPatch(object metav1.Object) []byte {
	kept := akriv0.WithoutAgentFinalizers(object.GetFinalizers())
	if len(kept) == len(object.GetFinalizers()) {
		return nil
	}
	metadata := map[string]any{"finalizers": kept}
	if version := object.GetResourceVersion(); version != "" {
		metadata["resourceVersion"] = version
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		panic(err) // strings always encode
	}
	return patch
}
