package cleanup_test

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/gentype"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
)

var madeByAkri = map[string]string{"controller": "akri.sh"}

func component(name, release string) map[string]string {
	return map[string]string{
		"app.kubernetes.io/part-of": "akri", "app.kubernetes.io/component": name, "app.kubernetes.io/instance": release,
	}
}

// world is what a test puts into the API server; it is gone after the test.
type world struct {
	t              *testing.T
	configurations *gentype.ClientWithList[*akriv0.Configuration, *akriv0.ConfigurationList]
	instances      *gentype.ClientWithList[*akriv0.Instance, *akriv0.InstanceList]
	pods           *gentype.ClientWithList[*corev1.Pod, *corev1.PodList]
	services       *gentype.ClientWithList[*corev1.Service, *corev1.ServiceList]
	jobs           *gentype.ClientWithList[*batchv1.Job, *batchv1.JobList]
	leases         *gentype.ClientWithList[*coordinationv1.Lease, *coordinationv1.LeaseList]
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		t:              t,
		configurations: calls[akriv0.Configuration, akriv0.ConfigurationList](t, akriv0.ConfigurationResource, akriv0.AddToScheme),
		instances:      calls[akriv0.Instance, akriv0.InstanceList](t, akriv0.InstanceResource, akriv0.AddToScheme),
		pods:           calls[corev1.Pod, corev1.PodList](t, corev1.SchemeGroupVersion.WithResource("pods"), corev1.AddToScheme),
		services:       calls[corev1.Service, corev1.ServiceList](t, corev1.SchemeGroupVersion.WithResource("services"), corev1.AddToScheme),
		jobs:           calls[batchv1.Job, batchv1.JobList](t, batchv1.SchemeGroupVersion.WithResource("jobs"), batchv1.AddToScheme),
		leases:         calls[coordinationv1.Lease, coordinationv1.LeaseList](t, coordinationv1.SchemeGroupVersion.WithResource("leases"), coordinationv1.AddToScheme),
	}
	t.Cleanup(w.clear)
	return w
}

// calls returns those for the namespace default.
func calls[T, L any, PT interface {
	*T
	kube.Object
}, PL interface {
	*L
	runtime.Object
}](t *testing.T, resource schema.GroupVersionResource, add func(*runtime.Scheme) error) *gentype.ClientWithList[PT, PL] {
	t.Helper()
	client, err := kube.NewClient(server.Config(), resource, add, func() PT { return new(T) }, func() PL { return new(L) })
	require.NoError(t, err)
	return client.In("default")
}

// clear removes what the program must leave.
func (w *world) clear() {
	ctx, now := context.WithoutCancel(w.t.Context()), int64(0)
	at := metav1.DeleteOptions{GracePeriodSeconds: &now}
	free := []byte(`{"metadata":{"finalizers":null}}`)
	for _, name := range names(w, w.pods) {
		_ = w.pods.Delete(ctx, name, at)
	}
	for _, name := range names(w, w.services) {
		if name != "kubernetes" {
			_ = w.services.Delete(ctx, name, at)
		}
	}
	for _, name := range names(w, w.leases) {
		_ = w.leases.Delete(ctx, name, at)
	}
	for _, name := range names(w, w.instances) {
		_ = w.instances.Delete(ctx, name, at)
		_, _ = w.instances.Patch(ctx, name, types.MergePatchType, free, metav1.PatchOptions{})
	}
	for _, name := range names(w, w.configurations) {
		_ = w.configurations.Delete(ctx, name, at)
		_, _ = w.configurations.Patch(ctx, name, types.MergePatchType, free, metav1.PatchOptions{})
	}
}

type lister[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
}

// names of the objects of a kind, sorted.
func names[L runtime.Object](w *world, kind lister[L]) []string {
	w.t.Helper()
	list, err := kind.List(context.WithoutCancel(w.t.Context()), metav1.ListOptions{})
	require.NoError(w.t, err)
	var found []string
	require.NoError(w.t, meta.EachListItem(list, func(object runtime.Object) error {
		accessor, err := meta.Accessor(object)
		found = append(found, accessor.GetName())
		return err
	}))
	slices.Sort(found)
	return found
}

func (w *world) namespace(name string) {
	w.t.Helper()
	client, err := kube.NewClient(server.Config(), corev1.SchemeGroupVersion.WithResource("namespaces"), corev1.AddToScheme,
		func() *corev1.Namespace { return &corev1.Namespace{} }, func() *corev1.NamespaceList { return &corev1.NamespaceList{} })
	require.NoError(w.t, err)
	_, err = client.In("").Create(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(w.t, err)
	}
}

func (w *world) configuration(name string, finalizers ...string) string {
	w.t.Helper()
	made, err := w.configurations.Create(w.t.Context(), &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers},
		Spec:       akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandler{Name: "onvif"}},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
	made.Status = akriv0.ConfigurationStatus{Devices: 2, Nodes: []akriv0.NodeStatus{{Name: "node-a", Devices: 2}}}
	_, err = w.configurations.UpdateStatus(w.t.Context(), made, metav1.UpdateOptions{})
	require.NoError(w.t, err)
	return name
}

func (w *world) instance(namespace, name string, finalizers ...string) {
	w.t.Helper()
	client, err := kube.Instances(server.Config())
	require.NoError(w.t, err)
	_, err = client.In(namespace).Create(w.t.Context(), &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers},
		Spec:       akriv0.InstanceSpec{ConfigurationName: "camera", CDIName: "akri.sh/camera=1", Capacity: 1},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

var podSpec = corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}

func (w *world) pod(name string, labels map[string]string) {
	w.t.Helper()
	_, err := w.pods.Create(w.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: podSpec}, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

func (w *world) service(name string, labels map[string]string) {
	w.t.Helper()
	_, err := w.services.Create(w.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

func (w *world) job(name string, labels map[string]string) {
	w.t.Helper()
	spec := podSpec
	spec.RestartPolicy = corev1.RestartPolicyNever
	_, err := w.jobs.Create(w.t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec}},
	}, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

func (w *world) lease(name string) {
	w.t.Helper()
	_, err := w.leases.Create(w.t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(w.t, err)
}
