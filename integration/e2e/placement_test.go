package e2e_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/integration/mesh"
)

const devicesLabel = "e2e-devices"

// separateServices checks where the cluster services run on a site with two nodes. If both have
// node services, they share them. If they must not, they leave a node, also when node services come
// to it later.
func separateServices(t *testing.T) {
	onlyLong(t, "installs Akri twice")
	label := func(node, value string) {
		_, err := akri.Kubectl(context.WithoutCancel(t.Context()), "", "label", "node", node, devicesLabel+value, "--overwrite")
		require.NoError(t, err)
	}
	requireCheck(t, "", "Warning: placement: ", ", and there is no other node for them")

	label("node-a", "=here")
	t.Cleanup(func() {
		label("node-a", "-")
		label("node-b", "-")
		require.NoError(t, akri.Install(context.WithoutCancel(t.Context())))
	})
	require.NoError(t, akri.Install(t.Context(), "global.nodePlane.nodeSelector."+devicesLabel+"=here", "global.separateClusterServices=true"))
	awaitPlaced(t, "node-b")
	requireCheck(t, "", "no cluster service runs on a node with node services")
	releaseWhileOff(t, akri.Cluster.Nodes()[0])

	label("node-b", "=here")
	awaitNodeServices(t, 2)
	awaitPlaced(t)
	requireCheck(t, "a check has failed", "may not run on a node with node services, and no other node accepts it")

	label("node-a", "-")
	awaitPlaced(t, "node-a")
	awaitNodeServices(t, 1)
}

// awaitPlaced waits until each cluster service has its Pods, and until they are on the nodes, on
// all of these and no others.
func awaitPlaced(t *testing.T, nodes ...string) {
	t.Helper()
	ofAkri := metav1.ListOptions{LabelSelector: "app.kubernetes.io/component in (instance-writer, broker-controller)"}
	awaitObjects(t, fmt.Sprintf("the cluster services on %v", nodes), akri.Kubernetes.CoreV1().Pods(mesh.Namespace), ofAkri, func(pods []corev1.Pod) error {
		placed, services := map[string]bool{}, map[string]bool{}
		for _, pod := range pods {
			services[pod.Labels["app.kubernetes.io/component"]] = true
			if pod.Spec.NodeName != "" {
				placed[pod.Spec.NodeName] = true
			}
		}
		for _, node := range nodes {
			if !placed[node] {
				return fmt.Errorf("none on %s", node)
			}
		}
		if len(placed) != len(nodes) || len(services) != 2 {
			return fmt.Errorf("%v on %v", services, placed)
		}
		return nil
	})
}

// awaitNodeServices waits until as many nodes have node services.
func awaitNodeServices(t *testing.T, nodes int) {
	t.Helper()
	marking := metav1.ListOptions{LabelSelector: "app.kubernetes.io/component in (discovery-operator, agent)"}
	awaitObjects(t, "the node services", akri.Kubernetes.CoreV1().Pods(mesh.Namespace), marking, func(pods []corev1.Pod) error {
		if len(pods) != nodes {
			return fmt.Errorf("%d Pods", len(pods))
		}
		for _, pod := range pods {
			if pod.Spec.NodeName == "" {
				return fmt.Errorf("%s has no node", pod.Name)
			}
		}
		return nil
	})
}

// requireCheck checks the error and the output of `kubectl akri check`.
func requireCheck(t *testing.T, problem string, contents ...string) {
	t.Helper()
	output, err := kubectlAkri(t.Context(), "check")
	if problem == "" {
		require.NoError(t, err, output)
	} else {
		require.ErrorContains(t, err, problem)
	}
	for _, content := range contents {
		require.Contains(t, output, content)
	}
}
