package e2e_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/mesh"
)

// decided is the form that the cluster decides, which is the default: all services run on all
// nodes.
func decided() form {
	return form{
		services: append([]string{
			"registrar", "discovery-operator", "device-plugin-host", "config-plugin-allocator", "dra-kubelet-plugin",
		}, defaultHandlers()...),
		decided: true,
	}
}

// decidedAgent is the form that the cluster decides, in the agent.
func decidedAgent() form {
	return form{values: []string{withAgent}, services: []string{"agent"}, decided: true}
}

// keptForms upgrades installations with device plugins and, with AKRI_E2E_LONG, with Dynamic
// Resource Allocation. Each keeps what it has, and its brokers run on.
func keptForms(t *testing.T) {
	t.Run(akriv0.ResourcesDevicePlugin, func(t *testing.T) { keptForm(t, akriv0.ResourcesDevicePlugin) })
	t.Run(akriv0.ResourcesDRA, func(t *testing.T) {
		onlyLong(t, "installs and uninstalls Akri again")
		keptForm(t, akriv0.ResourcesDRA)
	})
}

func keptForm(t *testing.T, resources string) {
	require.NoError(t, akri.Install(t.Context(), "global.resources="+resources))
	manifest := echoConfiguration("e2e-kept", 2, broker, "foo0")
	require.NoError(t, akri.ApplyText(t.Context(), manifest))
	brokers := awaitBrokers(t, "default", "e2e-kept", 2)

	require.NoError(t, akri.Install(t.Context()))
	awaitDecision(t, resources, akriv0.ResourcesInstancesExist)
	for _, pod := range brokers {
		require.Equal(t, resources == akriv0.ResourcesDRA, pod.Status.ExtendedResourceClaimStatus != nil)
		requireUnchanged(t, &pod)
	}
	require.Equal(t, podUIDs(brokers), podUIDs(awaitBrokers(t, "default", "e2e-kept", 2)))

	require.NoError(t, akri.DeleteText(t.Context(), manifest))
	_, err := akri.Uninstall(t.Context())
	require.NoError(t, err)
}

// awaitDecision waits until the cluster has decided, and checks the record, which it returns.
func awaitDecision(t *testing.T, resources, reason string) map[string]string {
	t.Helper()
	var record map[string]string
	configMaps := akri.Kubernetes.CoreV1().ConfigMaps(mesh.Namespace)
	ofRecord := metav1.ListOptions{FieldSelector: "metadata.name=" + akriv0.ResourcesConfigMap}
	awaitObjects(t, "the decision", configMaps, ofRecord, func(found []corev1.ConfigMap) error {
		if len(found) != 1 || found[0].Data[akriv0.ResourcesKey] == "" {
			return errors.New("nothing is recorded")
		}
		record = found[0].Data
		return nil
	})
	require.Equal(t, resources, record[akriv0.ResourcesKey], record)
	require.Equal(t, reason, record[akriv0.ResourcesReasonKey], record)
	return record
}

// decidedCluster checks that the API servers, which have all features, make the cluster use Dynamic
// Resource Allocation, and that a node with the label has device plugins.
func decidedCluster(t *testing.T) {
	record := awaitDecision(t, akriv0.ResourcesDRA, akriv0.ResourcesFeaturesComplete)
	apply(t, echoConfiguration("e2e-decided", 2, broker, "foo0"))
	checkForms(t, awaitBrokers(t, "default", "e2e-decided", 2), "")
	owner, err := akri.Kubernetes.ResourceV1().DeviceClasses().Get(t.Context(), akriv0.Driver, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "ClusterRole", owner.OwnerReferences[0].Kind)
	text, err := kubectlAkri(t.Context(), "check")
	require.NoError(t, err, text)
	require.Contains(t, text, "dra, decided at "+record[akriv0.ResourcesDecidedAtKey])

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
