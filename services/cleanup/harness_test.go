package cleanup_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
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

var createdByAkri = map[string]string{"controller": "akri.sh"}

func component(name, release string) map[string]string {
	return map[string]string{
		"app.kubernetes.io/part-of": "akri", "app.kubernetes.io/component": name, "app.kubernetes.io/instance": release,
	}
}

// testEnv creates objects for a test. They are deleted after the test.
type testEnv struct {
	t              *testing.T
	configurations *gentype.ClientWithList[*akriv0.Configuration, *akriv0.ConfigurationList]
	instances      *gentype.ClientWithList[*akriv0.Instance, *akriv0.InstanceList]
	pods           *gentype.ClientWithList[*corev1.Pod, *corev1.PodList]
	services       *gentype.ClientWithList[*corev1.Service, *corev1.ServiceList]
	jobs           *gentype.ClientWithList[*batchv1.Job, *batchv1.JobList]
	leases         *gentype.ClientWithList[*coordinationv1.Lease, *coordinationv1.LeaseList]
	deployments    *gentype.ClientWithList[*appsv1.Deployment, *appsv1.DeploymentList]
}

func newTestEnv(t *testing.T) *testEnv {
	t.Helper()
	e := &testEnv{
		t:              t,
		configurations: newClient[akriv0.Configuration, akriv0.ConfigurationList](t, akriv0.ConfigurationResource),
		instances:      newClient[akriv0.Instance, akriv0.InstanceList](t, akriv0.InstanceResource),
		pods:           newClient[corev1.Pod, corev1.PodList](t, corev1.SchemeGroupVersion.WithResource("pods")),
		services:       newClient[corev1.Service, corev1.ServiceList](t, corev1.SchemeGroupVersion.WithResource("services")),
		jobs:           newClient[batchv1.Job, batchv1.JobList](t, batchv1.SchemeGroupVersion.WithResource("jobs")),
		leases:         newClient[coordinationv1.Lease, coordinationv1.LeaseList](t, coordinationv1.SchemeGroupVersion.WithResource("leases")),
		deployments:    newClient[appsv1.Deployment, appsv1.DeploymentList](t, appsv1.SchemeGroupVersion.WithResource("deployments")),
	}
	t.Cleanup(e.clear)
	return e
}

// newClient returns a client for the namespace default.
func newClient[T, L any, PT interface {
	*T
	kube.Object
}, PL interface {
	*L
	runtime.Object
}](t *testing.T, resource schema.GroupVersionResource) *gentype.ClientWithList[PT, PL] {
	t.Helper()
	client, err := kube.NewClient[T, L, PT, PL](server.Config(), resource)
	require.NoError(t, err)
	return client.In("default")
}

// clear deletes the objects that the service keeps.
func (e *testEnv) clear() {
	ctx, now := context.WithoutCancel(e.t.Context()), int64(0)
	options := metav1.DeleteOptions{GracePeriodSeconds: &now}
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	for _, name := range names(e, e.pods) {
		_ = e.pods.Delete(ctx, name, options)
	}
	for _, name := range names(e, e.services) {
		if name != "kubernetes" {
			_ = e.services.Delete(ctx, name, options)
		}
	}
	for _, name := range names(e, e.leases) {
		_ = e.leases.Delete(ctx, name, options)
	}
	for _, name := range names(e, e.deployments) {
		_ = e.deployments.Delete(ctx, name, options)
	}
	for _, name := range names(e, e.instances) {
		_ = e.instances.Delete(ctx, name, options)
		_, _ = e.instances.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	for _, name := range names(e, e.configurations) {
		_ = e.configurations.Delete(ctx, name, options)
		_, _ = e.configurations.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	}
}

type lister[L runtime.Object] interface {
	List(context.Context, metav1.ListOptions) (L, error)
}

// names returns the sorted names of the objects of a kind.
func names[L runtime.Object](e *testEnv, kind lister[L]) []string {
	e.t.Helper()
	list, err := kind.List(context.WithoutCancel(e.t.Context()), metav1.ListOptions{})
	require.NoError(e.t, err)
	var result []string
	require.NoError(e.t, meta.EachListItem(list, func(object runtime.Object) error {
		accessor, err := meta.Accessor(object)
		result = append(result, accessor.GetName())
		return err
	}))
	slices.Sort(result)
	return result
}

func (e *testEnv) namespace(name string) {
	e.t.Helper()
	client, err := kube.NewClient[corev1.Namespace, corev1.NamespaceList](
		server.Config(), corev1.SchemeGroupVersion.WithResource("namespaces"))
	require.NoError(e.t, err)
	_, err = client.In("").Create(e.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(e.t, err)
	}
}

func (e *testEnv) configuration(name string, finalizers ...string) string {
	e.t.Helper()
	created, err := e.configurations.Create(e.t.Context(), &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers},
		Spec:       akriv0.ConfigurationSpec{DiscoveryHandler: akriv0.DiscoveryHandler{Name: "onvif"}},
	}, metav1.CreateOptions{})
	require.NoError(e.t, err)
	created.Status = akriv0.ConfigurationStatus{Devices: 2, Nodes: []akriv0.NodeStatus{{Name: "node-a", Devices: 2}}}
	_, err = e.configurations.UpdateStatus(e.t.Context(), created, metav1.UpdateOptions{})
	require.NoError(e.t, err)
	return name
}

func (e *testEnv) instance(namespace, name string, finalizers ...string) {
	e.t.Helper()
	client, err := kube.Instances(server.Config())
	require.NoError(e.t, err)
	_, err = client.In(namespace).Create(e.t.Context(), &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers},
		Spec:       akriv0.InstanceSpec{ConfigurationName: "camera", CDIName: "akri.sh/camera=1", Capacity: 1},
	}, metav1.CreateOptions{})
	require.NoError(e.t, err)
}

var podSpec = corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}

func (e *testEnv) pod(name string, labels map[string]string) {
	e.t.Helper()
	e.podOn("", name, labels)
}

func (e *testEnv) podOn(node, name string, labels map[string]string) {
	e.t.Helper()
	spec := podSpec
	spec.NodeName = node
	_, err := e.pods.Create(e.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: spec}, metav1.CreateOptions{})
	require.NoError(e.t, err)
}

// awaitDeletion waits until a Pod is being deleted.
func (e *testEnv) awaitDeletion(name string) {
	e.t.Helper()
	require.Eventually(e.t, func() bool {
		pod, err := e.pods.Get(context.WithoutCancel(e.t.Context()), name, metav1.GetOptions{})
		return err == nil && pod.DeletionTimestamp != nil
	}, time.Minute, 10*time.Millisecond)
}

func (e *testEnv) service(name string, labels map[string]string) {
	e.t.Helper()
	_, err := e.services.Create(e.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	require.NoError(e.t, err)
}

func (e *testEnv) job(name string, labels map[string]string) {
	e.t.Helper()
	spec := podSpec
	spec.RestartPolicy = corev1.RestartPolicyNever
	_, err := e.jobs.Create(e.t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: spec}},
	}, metav1.CreateOptions{})
	require.NoError(e.t, err)
}

func (e *testEnv) lease(name string) {
	e.t.Helper()
	_, err := e.leases.Create(e.t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(e.t, err)
}

// brokerController creates the Deployment of broker-controller with the labels.
func (e *testEnv) brokerController(labels map[string]string) {
	e.t.Helper()
	selector := map[string]string{"app": "broker-controller"}
	_, err := e.deployments.Create(e.t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "akri-controller-deployment", Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: selector},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selector}, Spec: podSpec},
		},
	}, metav1.CreateOptions{})
	require.NoError(e.t, err)
}

// allow gives a user rights, and waits until the API server grants them.
func (e *testEnv) allow(user string, rules ...rbacv1.PolicyRule) {
	e.t.Helper()
	ctx, metadata := context.WithoutCancel(e.t.Context()), metav1.ObjectMeta{Name: user}
	roles, err := kube.NewClient[rbacv1.ClusterRole, rbacv1.ClusterRoleList](
		server.Config(), rbacv1.SchemeGroupVersion.WithResource("clusterroles"))
	require.NoError(e.t, err)
	bindings, err := kube.NewClient[rbacv1.ClusterRoleBinding, rbacv1.ClusterRoleBindingList](
		server.Config(), rbacv1.SchemeGroupVersion.WithResource("clusterrolebindings"))
	require.NoError(e.t, err)
	_, err = roles.In("").Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metadata, Rules: rules}, metav1.CreateOptions{})
	require.NoError(e.t, err)
	_, err = bindings.In("").Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metadata, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: user}},
		RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: user},
	}, metav1.CreateOptions{})
	require.NoError(e.t, err)
	e.t.Cleanup(func() {
		_ = bindings.In("").Delete(ctx, user, metav1.DeleteOptions{})
		_ = roles.In("").Delete(ctx, user, metav1.DeleteOptions{})
	})

	config := server.Config()
	config.Impersonate.UserName = user
	pods, err := kube.NewClient[corev1.Pod, corev1.PodList](config, corev1.SchemeGroupVersion.WithResource("pods"))
	require.NoError(e.t, err)
	require.Eventually(e.t, func() bool {
		_, err := pods.In("").List(ctx, metav1.ListOptions{})
		return err == nil
	}, time.Minute, 10*time.Millisecond)
}
