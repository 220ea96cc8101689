package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/mesh"
)

const zoneLabel = akriv0.NodeRestrictionPrefix + "e2e-zone"

// allowedNodes checks that the devices, the brokers and the details of a Configuration are only on
// the nodes that it allows, and that a kubelet cannot give its Node the labels.
func allowedNodes(t *testing.T) {
	allow := func(names, labels string) {
		text := echoConfiguration("e2e-nodes", 2, broker, "foo0")
		apply(t, strings.Replace(text, "spec:", "spec:\n  nodes: {"+names+labels+"}", 1))
	}
	label := func(node, value string) {
		_, err := akri.Kubectl(context.WithoutCancel(t.Context()), "", "label", "node", node, zoneLabel+value, "--overwrite")
		require.NoError(t, err)
	}
	only := func(node string) {
		await(t, "the device on "+node, func(context.Context) error {
			found := instances(t, "default", "e2e-nodes")
			if len(found) != 1 || !slices.Equal(found[0].Spec.Nodes, []string{node}) {
				return fmt.Errorf("%d Instances", len(found))
			}
			return nil
		})
		// The broker of the previous node is the only one until broker-controller replaces it.
		awaitObjects(t, "the only broker on "+node, akri.Kubernetes.CoreV1().Pods("default"), ofConfiguration("e2e-nodes"), func(pods []corev1.Pod) error {
			if len(pods) != 1 {
				return fmt.Errorf("%d brokers", len(pods))
			}
			if ready := mesh.Ready(&pods[0]); pods[0].Spec.NodeName != node || !ready {
				return fmt.Errorf("the broker is on %q, ready: %t", pods[0].Spec.NodeName, ready)
			}
			return nil
		})
	}

	allow("names: [node-b]", "")
	only("node-b")
	stolen := watchConfigurations(t, "debugEcho") // of node-a
	received := stolen.next("e2e-nodes")
	require.True(t, received.GetNodeNotAllowed())
	require.Nil(t, received.GetRequest())

	t.Cleanup(func() { label("node-a", "-") })
	label("node-a", "=north")
	allow("matchLabels: {", zoneLabel+": north}")
	only("node-a")

	_, err := akri.Kubectl(t.Context(), "", "label", "node", "node-b", zoneLabel+"=north",
		"--as=system:node:node-b", "--as-group=system:nodes")
	require.ErrorContains(t, err, "is not allowed to modify labels")
	requireAnyMirrorPod(t, "node-b")
}

// requireAnyMirrorPod requires that a kubelet can create a mirror Pod with a device that its node
// does not have. So Pods do not prove that a node needs its slots (docs/security.md).
func requireAnyMirrorPod(t *testing.T, node string) {
	t.Helper()
	object, err := akri.Kubernetes.CoreV1().Nodes().Get(t.Context(), node, metav1.GetOptions{})
	require.NoError(t, err)
	pod := fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata:
  name: e2e-mirror
  namespace: default
  annotations: {kubernetes.io/config.mirror: any}
  ownerReferences: [{apiVersion: v1, kind: Node, name: %[1]s, uid: %[2]s, controller: true}]
spec:
  nodeName: %[1]s
  containers: [{name: main, image: any, resources: {limits: {%[3]s: 1}}}]
`, node, object.UID, akriv0.ResourceName("any-device"))
	_, err = akri.Kubectl(t.Context(), pod, "create", "--filename=-", "--as=system:node:"+node, "--as-group=system:nodes")
	require.NoError(t, err)
	_, err = akri.Kubectl(t.Context(), "", "delete", "pod", "e2e-mirror", "--ignore-not-found", "--wait=false")
	require.NoError(t, err)
}
