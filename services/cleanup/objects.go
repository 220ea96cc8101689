package cleanup

import (
	"context"
	"fmt"

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

// kind of objects that Akri makes; of those only the metadata is of interest here.
type kind struct {
	name     string
	resource schema.GroupVersionResource
	// made selects those of the kind that Akri made; empty: all.
	made string
}

// leaseName in the namespace of the release.
const leaseName = "akri-broker-controller"

const madeByAkri = "controller=" + akriv0.Group

var (
	instance = kind{"Instance", akriv0.InstanceResource, ""}
	pod      = kind{"Pod", corev1.SchemeGroupVersion.WithResource("pods"), madeByAkri}
	job      = kind{"Job", batchv1.SchemeGroupVersion.WithResource("jobs"), madeByAkri}
	svc      = kind{"Service", corev1.SchemeGroupVersion.WithResource("services"), madeByAkri}
	// lease is that of the broker-controller's election. The controller makes it, so that Helm does
	// not know it.
	lease = kind{"Lease", coordinationv1.SchemeGroupVersion.WithResource("leases"), ""}
	// kinds in the order of removal: a Job would make its Pods again, and the garbage collector
	// follows Instances.
	kinds = []kind{job, pod, svc, instance}
)

// object is what is known of one object.
type object struct {
	kind
	metadata *metav1.PartialObjectMetadata
}

// String is for logs and messages.
func (o object) String() string {
	return fmt.Sprintf("%s %s/%s", o.name, o.metadata.Namespace, o.metadata.Name)
}

type metadataClient = kube.Client[*metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList]

// objects reads and removes objects of all kinds.
type objects struct {
	clients        map[kind]*metadataClient
	configurations *kube.Client[*akriv0.Configuration, *akriv0.ConfigurationList]
}

func newObjects(config *rest.Config) (*objects, error) {
	configurations, err := kube.Configurations(config)
	if err != nil {
		return nil, err
	}
	o := &objects{clients: map[kind]*metadataClient{}, configurations: configurations}
	for _, k := range append([]kind{lease}, kinds...) {
		if o.clients[k], err = newMetadataClient(config, k); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// newMetadataClient decodes whole objects into their metadata: the rest of them falls away.
func newMetadataClient(config *rest.Config, k kind) (*metadataClient, error) {
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

// list returns the objects of a kind in all namespaces; none when the cluster does not know the
// kind.
func (o *objects) list(ctx context.Context, k kind, selector string) ([]object, error) {
	list, err := o.clients[k].In(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", k.resource.Resource, err)
	}
	found := make([]object, 0, len(list.Items))
	for i := range list.Items {
		found = append(found, object{k, &list.Items[i]})
	}
	return found, nil
}

// remove takes Akri's finalizers off an object and deletes it. One that is gone is no error.
func (o *objects) remove(ctx context.Context, object object) error {
	calls, meta := o.clients[object.kind].In(object.metadata.Namespace), object.metadata
	if patch, needed := withoutFinalizers(meta); needed {
		_, err := calls.Patch(ctx, meta.Name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("take finalizers off %s: %w", object, err)
		}
	}
	if meta.DeletionTimestamp != nil {
		return nil
	}
	background := metav1.DeletePropagationBackground
	err := calls.Delete(ctx, meta.Name, metav1.DeleteOptions{PropagationPolicy: &background})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s: %w", object, err)
	}
	return nil
}

// removeLease removes the Lease of the broker-controller. One that is gone is no error.
func (o *objects) removeLease(ctx context.Context, namespace string) error {
	err := o.clients[lease].In(namespace).Delete(ctx, leaseName, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete Lease %s/%s: %w", namespace, leaseName, err)
	}
	return nil
}
