package e2e_test

import (
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/mesh"
)

// decided is the form that the cluster decides: all services run on all nodes.
func decided() form {
	return form{
		values: []string{"global.resources=auto"},
		services: append([]string{
			"registrar", "discovery-operator", "device-plugin-host", "config-plugin-allocator", "dra-kubelet-plugin",
		}, defaultHandlers()...),
		decided: true,
	}
}

// decidedAgent is the form that the cluster decides, in the agent.
func decidedAgent() form {
	return form{values: slices.Concat(decided().values, agent().values), services: []string{"agent"}, decided: true}
}

// TestAuto lets the cluster decide how Pods get devices, and moves a node, with AKRI_E2E_AGENT on
// the agent.
func TestAuto(t *testing.T) {
	selectForm(decided())
	if os.Getenv("AKRI_E2E_AGENT") != "" {
		selectForm(decidedAgent())
	}
	require.NoError(t, akri.Install(t.Context()))
	inOrder(t,
		decidedCluster,
		movedNode,
		uninstallDRA,
	)
}

// decidedCluster checks that the API servers, which have all features, make the cluster use Dynamic
// Resource Allocation, and that a node with the label has device plugins.
func decidedCluster(t *testing.T) {
	var record *corev1.ConfigMap
	configMaps := akri.Kubernetes.CoreV1().ConfigMaps(mesh.Namespace)
	ofRecord := metav1.ListOptions{FieldSelector: "metadata.name=" + akriv0.ResourcesConfigMap}
	awaitObjects(t, "the decision", configMaps, ofRecord, func(found []corev1.ConfigMap) error {
		if len(found) != 1 || found[0].Data[akriv0.ResourcesKey] == "" {
			return errors.New("nothing is recorded")
		}
		record = &found[0]
		return nil
	})
	require.Equal(t, akriv0.ResourcesDRA, record.Data[akriv0.ResourcesKey], record.Data)
	require.Equal(t, akriv0.ResourcesFeaturesComplete, record.Data[akriv0.ResourcesReasonKey])

	apply(t, echoConfiguration("e2e-decided", 2, broker, "foo0"))
	checkForms(t, awaitBrokers(t, "default", "e2e-decided", 2), "")
	owner, err := akri.Kubernetes.ResourceV1().DeviceClasses().Get(t.Context(), akriv0.Driver, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "ClusterRole", owner.OwnerReferences[0].Kind)
	text, err := kubectlAkri(t.Context(), "check")
	require.NoError(t, err, text)
	require.Contains(t, text, "dra, decided at "+record.Data[akriv0.ResourcesDecidedAtKey])

	node := akri.Cluster.Nodes()[1]
	setResources(t, node, akriv0.ResourcesDevicePlugin)
	t.Cleanup(func() { setResources(t, node, "") })
	apply(t, echoConfiguration("e2e-plugins", 2, broker, "foo1"))
	checkForms(t, awaitBrokers(t, "default", "e2e-plugins", 2), node.Name())
}

// checkForms checks that the brokers have their devices through ResourceClaims, except those on the
// node with device plugins.
func checkForms(t *testing.T, brokers []corev1.Pod, devicePlugins string) {
	t.Helper()
	for _, pod := range brokers {
		hasClaim := pod.Status.ExtendedResourceClaimStatus != nil
		require.Equal(t, pod.Spec.NodeName != devicePlugins, hasClaim, "a broker on %s", pod.Spec.NodeName)
	}
}
