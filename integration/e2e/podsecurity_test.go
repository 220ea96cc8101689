package e2e_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/integration/mesh"
)

const nodeNamespace = `
apiVersion: v1
kind: Namespace
metadata:
  name: e2e-nodes
  labels: {pod-security.kubernetes.io/enforce: privileged}
`

// podSecurity checks that Akri runs in two namespaces that enforce the levels of docs/security.md,
// and that it moves there and back while brokers run.
func podSecurity(t *testing.T) {
	onlyLong(t, "installs Akri twice")
	apply(t, echoConfiguration("e2e-levels", 2, broker, "foo0"))
	awaitBrokers(t, "default", "e2e-levels", 2)
	before := observe(t, "e2e-levels")
	apply(t, nodeNamespace)
	enforce := func(ctx context.Context, level string) {
		_, err := akri.Kubectl(ctx, "", "label", "namespace", mesh.Namespace, "--overwrite", "pod-security.kubernetes.io/enforce"+level)
		require.NoError(t, err)
	}
	enforce(t.Context(), "=restricted")
	t.Cleanup(func() { enforce(context.WithoutCancel(t.Context()), "-") })

	require.NoError(t, akri.Install(t.Context(), "global.nodePlane.namespace=e2e-nodes"))
	restartController(t)
	pods, err := akri.Kubernetes.CoreV1().Pods("e2e-nodes").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, pods.Items, len(selected.services)*len(akri.Cluster.Nodes()))
	apply(t, echoConfiguration("e2e-restricted", 1, "", "foo0"))
	awaitInstances(t, "default", "e2e-restricted", "e2e-restricted-8120fe")
	require.Equal(t, before, observe(t, "e2e-levels"))

	enforce(t.Context(), "-")
	require.NoError(t, akri.Install(t.Context()))
	require.Equal(t, before, observe(t, "e2e-levels"))
}

// restartController creates the Pods of broker-controller at the level that is enforced now. The
// installation replaces those of instance-writer.
func restartController(t *testing.T) {
	t.Helper()
	for _, arguments := range [][]string{{"rollout", "restart"}, {"rollout", "status", "--timeout=1m"}} {
		_, err := akri.Kubectl(t.Context(), "", append(arguments, "--namespace", mesh.Namespace, "deployment/akri-controller-deployment")...)
		require.NoError(t, err)
	}
}
