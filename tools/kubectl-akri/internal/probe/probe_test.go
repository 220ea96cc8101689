package probe_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"akri.sh/libs/inspect/fixture"
	"akri.sh/tools/kubectl-akri/internal/probe"
)

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
}
