package probe_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"akri.sh/libs/inspect/cluster"
	"akri.sh/libs/inspect/fixture"
	"akri.sh/libs/kube/kubetest"
	"akri.sh/tools/kubectl-akri/internal/probe"
)

var server *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &server) }

const fixtures = "../../../../libs/inspect/explain/testdata/"

func TestPlan(t *testing.T) {
	s := fixture.Load(t, fixtures+"healthy.yaml")
	_, err := probe.Of(s, "default", "camera")
	require.ErrorIs(t, err, probe.ErrNoSlot, "brokers use both slots")
	_, err = probe.Of(s, "default", "no-such")
	require.ErrorContains(t, err, `named "no-such"`)
	_, err = probe.Of(s, "other", "camera")
	require.ErrorContains(t, err, "the namespace other has no device")

	s.Instances[0].Spec.DeviceUsage = nil
	broker := &s.Configurations[0].Spec.BrokerSpec.BrokerPodSpec.Containers[0]
	broker.Env = []corev1.EnvVar{{Name: "PASSWORD", Value: "hunter2"}}
	broker.EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "login"}}}}
	for _, name := range []string{"camera", s.Instances[0].Name} {
		plan, err := probe.Of(s, "default", name)
		require.NoError(t, err)
		require.Equal(t, 2, plan.Free)
		require.Equal(t, "akri.sh/"+name, plan.Resource)
		require.Equal(t, plan.Node, plan.Pod.Spec.NodeName)
		require.True(t, strings.HasPrefix(plan.Image, "ghcr.io/akri-mesh/"), plan.Image)
		requireHarmless(t, plan.Pod)
	}
	for i := range s.Nodes {
		s.Nodes[i].Status.Conditions = nil
	}
	_, err = probe.Of(s, "default", "camera")
	require.ErrorContains(t, err, "no node that sees camera is ready")
}

// TestProbeRemovesNoPod lets the API server decide the priority of a probe with claims.
func TestProbeRemovesNoPod(t *testing.T) {
	client, err := cluster.New(server.Config())
	require.NoError(t, err)
	classes, pods := client.Kubernetes.SchedulingV1().PriorityClasses(), client.Kubernetes.CoreV1().Pods("default")
	low := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "probe-low"}, Value: -10}
	_, err = classes.Create(t.Context(), low, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, classes.Delete(context.WithoutCancel(t.Context()), low.Name, metav1.DeleteOptions{}))
	})
	container := []corev1.Container{{Name: "c", Image: "none"}}
	_, err = pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "low"}, Spec: corev1.PodSpec{PriorityClassName: low.Name, NodeName: "node-a", Containers: container},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, pods.Delete(context.WithoutCancel(t.Context()), "low", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	})

	plan := probe.Plan{Node: "node-a", Pod: &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "akri-probe-", Namespace: "default"}, Spec: corev1.PodSpec{Containers: container},
	}}
	_, _, err = probe.Run(t.Context(), client, plan)
	require.ErrorContains(t, err, "could remove the Pod default/low for the probe, because it has a lower priority (-10 instead of 0)")
	all, err := pods.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, all.Items, 1, "the probe does not run")

	// On another node, and with the same priority, it runs. Nothing schedules it here.
	for _, change := range []func(){
		func() { plan.Node = "node-b" },
		func() { plan.Node, plan.Pod.Spec.PriorityClassName = "node-a", low.Name },
	} {
		change()
		ctx, cancel := context.WithCancel(t.Context())
		watcher, err := pods.Watch(ctx, metav1.ListOptions{ResourceVersion: all.ResourceVersion})
		require.NoError(t, err)
		go func() {
			<-watcher.ResultChan()
			cancel()
		}()
		_, _, err = probe.Run(ctx, client, plan)
		require.ErrorIs(t, err, context.Canceled)
		all, err = pods.List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
	}
}

// requireHarmless requires that the Pod passes the level restricted, and cannot do anything.
func requireHarmless(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	require.NoError(t, err)
	latest := api.LevelVersion{Level: api.LevelRestricted, Version: api.LatestVersion()}
	for _, result := range evaluator.EvaluatePod(latest, &metav1.ObjectMeta{}, &pod.Spec) {
		require.True(t, result.Allowed, result.ForbiddenDetail)
	}
	require.False(t, *pod.Spec.AutomountServiceAccountToken)
	require.NotNil(t, pod.Spec.ActiveDeadlineSeconds)
	require.Equal(t, corev1.PullNever, pod.Spec.Containers[0].ImagePullPolicy)
	require.Empty(t, pod.Spec.Containers[0].Env)
	require.Empty(t, pod.Spec.Containers[0].EnvFrom)
	require.False(t, *pod.Spec.EnableServiceLinks)
}
