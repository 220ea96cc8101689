package cache_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/cache"
	"akri.sh/libs/inspect/cluster"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/kube/kubetest"
)

var server *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &server) }

// cached returns a Cache that is complete.
func cached(t *testing.T, config *rest.Config) *cache.Cache {
	t.Helper()
	cache, err := cache.New(t.Context(), config, "default")
	require.NoError(t, err)
	complete(t, cache)
	return cache
}

// complete runs the Cache until the test ends, and waits until it is complete.
func complete(t *testing.T, cache *cache.Cache) {
	t.Helper()
	running, stop := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() { defer close(stopped); cache.Run(running) }()
	t.Cleanup(func() { stop(); <-stopped })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	require.NoError(t, cache.Synced(ctx))
}

func await(t *testing.T, cache *cache.Cache, what string, is func() bool) {
	t.Helper()
	timeout := time.After(30 * time.Second)
	for changed := cache.Changed(); !is(); changed = cache.Changed() {
		select {
		case <-changed:
		case <-timeout:
			require.FailNow(t, "no "+what)
		}
	}
}

func instance(namespace, name string) *akriv0.Instance {
	return &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       akriv0.InstanceSpec{ConfigurationName: "camera", CDIName: "akri.sh/camera=1", Capacity: 1},
	}
}

func pod(name string, labels map[string]string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "none"}}},
	}
}

func TestCacheFollowsChanges(t *testing.T) {
	client, err := cluster.New(server.Config())
	require.NoError(t, err)
	cache := cached(t, server.Config())
	require.Empty(t, cache.Snapshot().Unreadable)
	for _, p := range []*corev1.Pod{pod("registrar", map[string]string{"app.kubernetes.io/part-of": "akri"}), pod("other", nil)} {
		_, err = client.Kubernetes.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	_, err = client.Instances.In("default").Create(t.Context(), instance("default", "camera-1"), metav1.CreateOptions{})
	require.NoError(t, err)
	for kind, apiVersion := range map[string]string{"Instance": "akri.sh/v0", "Pod": "v1"} {
		_, err = client.Kubernetes.CoreV1().Events("default").Create(t.Context(), &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{GenerateName: "event-"},
			InvolvedObject: corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: "default", Name: "camera-1"},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for _, name := range []string{"registrar", "other"} {
		_, err = client.Kubernetes.CoreV1().Events("default").Create(t.Context(), &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "event-"}, Type: corev1.EventTypeWarning, Reason: "BackOff", Message: "warning about " + name,
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: name},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	await(t, cache, "objects", func() bool {
		s := cache.Snapshot()
		return len(s.Instances) == 1 && len(s.Pods) == 1 && s.Pods[0].Name == "registrar" && len(cache.Events()) == 2
	})
	for _, event := range cache.Events() {
		require.NotEqual(t, "warning about other", event.Message, "Pods that use no devices have no page")
	}
	await(t, cache, "entry of the device", func() bool { return len(cache.Timeline("default", "camera-1").Entries) > 0 })
	require.NoError(t, client.Instances.In("default").Delete(t.Context(), "camera-1", metav1.DeleteOptions{}))
	await(t, cache, "deletion", func() bool { return len(cache.Snapshot().Instances) == 0 })
	await(t, cache, "entry of the removal", func() bool {
		entries := cache.Timeline("default", "camera-1").Entries
		return len(entries) > 1 && entries[0].Text == "removed"
	})
	require.NoError(t, client.Kubernetes.CoreV1().Pods("default").DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
}

// A Pod whose claim requests devices of Akri is shown, with its Warnings, and other Pods with
// claims are not.
func TestCacheFollowsClaims(t *testing.T) {
	client, err := cluster.New(server.Config())
	require.NoError(t, err)
	ctx, resources, pods := t.Context(), client.Kubernetes.ResourceV1(), client.Kubernetes.CoreV1().Pods("default")
	cache := cached(t, server.Config())
	for name, class := range map[string]string{"camera": "camera." + akriv0.Driver, "gpu": "gpu.example.com"} {
		_, err = resources.ResourceClaimTemplates("default").Create(ctx, &resourcev1.ResourceClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: resourcev1.ResourceClaimTemplateSpec{Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
				Requests: []resourcev1.DeviceRequest{{Name: "device", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class}}},
			}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		user := pod("user-of-"+name, nil)
		user.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "device", ResourceClaimTemplateName: &name}}
		_, err = pods.Create(ctx, user, metav1.CreateOptions{})
		require.NoError(t, err)
		_, err = client.Kubernetes.CoreV1().Events("default").Create(ctx, &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "event-"}, Type: corev1.EventTypeWarning, Reason: explain.ReasonUnprepared,
			InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: user.Name},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}

	await(t, cache, "Pod with a claim", func() bool {
		s := cache.Snapshot()
		return len(s.ResourceClaimTemplates) == 2 && len(s.Pods) == 1 && s.Pods[0].Name == "user-of-camera" && len(s.Unprepared) == 2
	})
	for _, event := range cache.Events() {
		require.NotEqual(t, "user-of-gpu", event.InvolvedObject.Name, "Pods that use no devices have no page")
	}
	require.NoError(t, pods.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	require.NoError(t, resources.ResourceClaimTemplates("default").DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
}

// The console in the cluster does not know whether the API server has Dynamic Resource Allocation.
func TestCacheWithoutDRA(t *testing.T) {
	without, err := server.Join(t.Context(), "--runtime-config=resource.k8s.io/v1=false")
	require.NoError(t, err)
	t.Cleanup(without.Stop)
	for _, config := range []*rest.Config{without.Config(), server.Config()} {
		c, err := cache.NewOfAll(config, true)
		require.NoError(t, err)
		complete(t, c)
	}
}

func TestCacheShowsThatTheAPIServerIsAway(t *testing.T) {
	client, err := cluster.New(server.Config())
	require.NoError(t, err)
	cache := cached(t, server.Config())
	require.Empty(t, cache.Health().Problem)
	require.NoError(t, server.Pause())
	defer func() { require.NoError(t, server.Resume()) }()
	await(t, cache, "problem", func() bool { return cache.Health().Problem != "" })
	require.NoError(t, server.Resume())
	await(t, cache, "recovery", func() bool { return cache.Health().Problem == "" })
	_, err = client.Instances.In("default").Create(t.Context(), instance("default", "camera-2"), metav1.CreateOptions{})
	require.NoError(t, err)
	await(t, cache, "new Instance", func() bool { return len(cache.Snapshot().Instances) == 1 })
	require.NoError(t, client.Instances.In("default").Delete(t.Context(), "camera-2", metav1.DeleteOptions{}))
}

// TestCacheHasNoSecrets searches what the Cache has of objects with a password in each field that
// can have one.
func TestCacheHasNoSecrets(t *testing.T) {
	const password = "hunter22"
	client, err := cluster.New(server.Config())
	require.NoError(t, err)
	ctx, meta := t.Context(), metav1.ObjectMeta{
		Name: "secrets", Namespace: "default", Labels: map[string]string{"app.kubernetes.io/part-of": "akri", "controller": "akri.sh"},
		Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: password},
	}
	spec := corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
		Name: "main", Image: "none", Command: []string{password}, Args: []string{password}, Env: []corev1.EnvVar{{Name: "P", Value: password}},
	}}}
	labels := map[string]string{"a": "b"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec}
	template.Spec.RestartPolicy = corev1.RestartPolicyAlways
	selector := &metav1.LabelSelector{MatchLabels: labels}
	c := &akriv0.Configuration{ObjectMeta: meta}
	c.Spec.DiscoveryHandler.Name = "onvif"
	c.Spec.DiscoveryHandler.DiscoveryProperties = []akriv0.DiscoveryProperty{{Name: "P", Value: new(password)}}
	c.Spec.BrokerProperties = map[string]string{"P": password}
	c.Spec.BrokerSpec = &akriv0.BrokerSpec{BrokerPodSpec: &spec}
	i := instance("default", "secrets")
	i.Spec.BrokerProperties = map[string]string{"P": password}
	claim := resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{{Name: "device", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: akriv0.Driver}}},
		Config: []resourcev1.DeviceClaimConfiguration{{DeviceConfiguration: resourcev1.DeviceConfiguration{Opaque: &resourcev1.OpaqueDeviceConfiguration{
			Driver: akriv0.Driver, Parameters: runtime.RawExtension{Raw: []byte(`{"p":"` + password + `"}`)},
		}}}},
	}}
	kubernetes := client.Kubernetes
	for _, create := range []func() error{
		func() error {
			_, err := client.Configurations.In("default").Create(ctx, c, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := client.Instances.In("default").Create(ctx, i, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := kubernetes.CoreV1().Pods("default").Create(ctx, &corev1.Pod{ObjectMeta: meta, Spec: spec}, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := kubernetes.BatchV1().Jobs("default").Create(ctx, &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{
				Template: corev1.PodTemplateSpec{Spec: spec},
			}}, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := kubernetes.AppsV1().DaemonSets("default").Create(ctx, &appsv1.DaemonSet{
				ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: template},
			}, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := kubernetes.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
				ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template},
			}, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := kubernetes.ResourceV1().ResourceClaims("default").Create(ctx, &resourcev1.ResourceClaim{ObjectMeta: meta, Spec: claim}, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := kubernetes.ResourceV1().ResourceClaimTemplates("default").Create(ctx, &resourcev1.ResourceClaimTemplate{
				ObjectMeta: meta, Spec: resourcev1.ResourceClaimTemplateSpec{ObjectMeta: metav1.ObjectMeta{Annotations: meta.Annotations}, Spec: claim},
			}, metav1.CreateOptions{})
			return err
		},
	} {
		require.NoError(t, create())
	}
	snapshot := cached(t, server.Config()).Snapshot()
	for kind, objects := range map[string]int{
		"Configurations": len(snapshot.Configurations), "Instances": len(snapshot.Instances), "Pods": len(snapshot.Pods), "Jobs": len(snapshot.Jobs),
		"DaemonSets": len(snapshot.DaemonSets), "Deployments": len(snapshot.Deployments),
		"ResourceClaims": len(snapshot.ResourceClaims), "ResourceClaimTemplates": len(snapshot.ResourceClaimTemplates),
	} {
		require.Equal(t, 1, objects, kind)
	}
	require.Equal(t, map[string]string{"P": ""}, snapshot.Instances[0].Spec.BrokerProperties, "the names stay")
	require.NotNil(t, snapshot.Configurations[0].Spec.BrokerSpec)
	text, err := json.Marshal(snapshot)
	require.NoError(t, err)
	require.NotContains(t, string(text), password)

	require.NoError(t, client.Configurations.In("default").Delete(ctx, "secrets", metav1.DeleteOptions{}))
	require.NoError(t, client.Instances.In("default").Delete(ctx, "secrets", metav1.DeleteOptions{}))
	require.NoError(t, kubernetes.CoreV1().Pods("default").Delete(ctx, "secrets", metav1.DeleteOptions{}))
	require.NoError(t, kubernetes.BatchV1().Jobs("default").Delete(ctx, "secrets", metav1.DeleteOptions{}))
	require.NoError(t, kubernetes.AppsV1().DaemonSets("default").Delete(ctx, "secrets", metav1.DeleteOptions{}))
	require.NoError(t, kubernetes.AppsV1().Deployments("default").Delete(ctx, "secrets", metav1.DeleteOptions{}))
	require.NoError(t, kubernetes.ResourceV1().ResourceClaims("default").Delete(ctx, "secrets", metav1.DeleteOptions{}))
	require.NoError(t, kubernetes.ResourceV1().ResourceClaimTemplates("default").Delete(ctx, "secrets", metav1.DeleteOptions{}))
}

// A user with rights in one namespace sees what is in it.
func TestCacheOfOneNamespace(t *testing.T) {
	client, err := cluster.New(server.Config())
	require.NoError(t, err)
	for _, namespace := range []string{"default", "kube-system"} {
		_, err = client.Instances.In(namespace).Create(t.Context(), instance(namespace, "camera-3"), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	_, err = client.Kubernetes.RbacV1().Roles("default").Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "viewer"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"akri.sh"}, Resources: []string{"instances"}, Verbs: []string{"list", "watch"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.Kubernetes.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "viewer"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "viewer"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "viewer"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	config := server.Config()
	config.Impersonate.UserName = "viewer"
	// The authorizer of the API server reads Roles from a cache.
	require.Eventually(t, func() bool {
		cache, err := cache.New(t.Context(), config, "default")
		return err == nil && cache.Snapshot().OneNamespace
	}, time.Minute, 50*time.Millisecond)
	s := cached(t, config).Snapshot()
	require.Len(t, s.Instances, 1)
	require.Equal(t, "default", s.Instances[0].Namespace)
	require.Equal(t, []string{
		"configurations", "daemonsets", "deployments", "events", "jobs", "nodes", "pods",
		"resourceclaims", "resourceclaimtemplates", "resourceslices", "validatingwebhookconfigurations",
	}, s.Unreadable)
}
