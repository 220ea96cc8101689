package e2e_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
)

// kubernetesVersion is the earlier version of Kubernetes that the cluster runs, or empty.
var kubernetesVersion = os.Getenv("AKRI_E2E_KUBERNETES")

// versionKubelet has what the kubelet of the version needs to accept the configuration of the
// cluster. One before 1.32 does not have the gate, and ignores the field that needs it.
func versionKubelet() string {
	if minor := minorVersion(); minor >= 32 && minor < 35 {
		return "featureGates: {KubeletCrashLoopBackOffMax: true}\n"
	}
	return ""
}

// minorVersion returns 34 for 1.34.
func minorVersion() (minor int) {
	_, _ = fmt.Sscanf(kubernetesVersion, "1.%d", &minor)
	return minor
}

func onVersion(t *testing.T, atLeast int) {
	t.Helper()
	if kubernetesVersion == "" {
		t.Skip("AKRI_E2E_KUBERNETES names no version")
	}
	if minorVersion() < atLeast {
		t.Skipf("Akri supports this from Kubernetes 1.%d on", atLeast)
	}
}

// TestVersion uses devices with device plugins on the version in AKRI_E2E_KUBERNETES.
func TestVersion(t *testing.T) {
	onVersion(t, 0)
	selectForm(separate())
	require.NoError(t, akri.Install(t.Context(), selected.handlers...))
	if !parallel(t,
		// Devices, slots and brokers.
		opcuaServers,
		zramDevices,
		sharedDevice,
		severalDevices,
		bothLevels,
		mostFreeDevice,
		brokersThatChange,
		servicesOfBrokers,
		failingJob,

		// Admission, tokens and commands.
		tenants,
		untrustedCallers,
		badInput,
		allowedNodes,
		noNodeRights,
		rejectedByWebhook,
		oldYAML,
		tried,
	) {
		return
	}
	inOrder(t,
		nodeRestart,
		uninstall,
	)
}

// TestVersionWithClaims uses devices with Dynamic Resource Allocation on the version in
// AKRI_E2E_KUBERNETES.
func TestVersionWithClaims(t *testing.T) {
	onVersion(t, 34)
	selectForm(dynamic())
	require.NoError(t, akri.Install(t.Context()))
	if minorVersion() < 36 {
		earlierScenarios(t)
		return
	}
	if !parallel(t,
		pluggedClaim,
		crowdedClaims,
		selectedDevice,
		severalClaims,
		preferredDevice,
		pairOfDevices,
		diagnosedDevice,
		refusedClaims,
	) {
		return
	}
	inOrder(t,
		killedWithClaims,
		uninstallDRA,
	)
}

// TestVersionDecided lets the version in AKRI_E2E_KUBERNETES decide how Pods get devices.
func TestVersionDecided(t *testing.T) {
	onVersion(t, 0)
	selectForm(decided())
	require.NoError(t, akri.Install(t.Context()))
	inOrder(t, decidedVersion)
}

// decidedVersion uses devices in the way that the version has. The hook of the uninstallation ends
// the brokers in either way.
func decidedVersion(t *testing.T) {
	resources, reason := akriv0.ResourcesDevicePlugin, akriv0.ResourcesFeaturesMissing
	if minorVersion() >= 36 {
		resources, reason = akriv0.ResourcesDRA, akriv0.ResourcesFeaturesComplete
	}
	awaitDecision(t, resources, reason)
	apply(t, echoConfiguration("e2e-gone", 3, broker, "foo0"))
	pods := awaitBrokers(t, "default", "e2e-gone", len(akri.Cluster.Nodes()))
	apply(t, ownPod("user", "e2e-gone"))
	for _, pod := range append(pods, *awaitReadyPod(t, "default", "user")) {
		require.Equal(t, resources == akriv0.ResourcesDRA, pod.Status.ExtendedResourceClaimStatus != nil, pod.Name)
	}
	require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), "user", metav1.DeleteOptions{}))
	awaitSlotsInUse(t, "e2e-gone-8120fe", len(pods))
	requireUninstalled(t, "e2e-gone", true)
}

// earlierScenarios are those of Kubernetes 1.34 and 1.35: each slot is a device, and Pods cannot
// request extended resources.
func earlierScenarios(t *testing.T) {
	t.Helper()
	if !parallel(t,
		earlierClaims,
		preferredDevice,
		pairOfDevices,
		diagnosedBusyDevice,
		earlierBrokers,
	) {
		return
	}
	inOrder(t,
		earlierForms,
		uninstallEarlier,
	)
}

// earlierClaims runs more Pods than slots, and two containers that share one.
func earlierClaims(t *testing.T) {
	const instance = "dra-selector-a19705"
	apply(t, sample(t, "dra-selector.yaml", "replicas: 1", "replicas: 3", "capacity: 2", "capacity: 3"))
	pods := follow(t, "dra-selector")
	first := awaitRunning(t, "dra-selector", 3)[0]
	requireClaims(t, instance, 3)
	apply(t, twoContainers)
	awaitUnschedulable(t, "two-containers")
	require.NoError(t, akri.Kubernetes.AppsV1().Deployments("default").Delete(t.Context(), "dra-selector", metav1.DeleteOptions{}))
	pod := awaitReadyPod(t, "default", "two-containers")
	for _, container := range pod.Spec.Containers {
		require.Equal(t, "foo1", environment(t, pod, container.Name)[description], "the device of pod %s", first.Name)
	}
	requireClaims(t, instance, 1)
	require.Empty(t, pods.rejections(), "pods that the kubelet rejected")
	require.NoError(t, akri.DeleteText(t.Context(), twoContainers))
	awaitFree(t, instance)
}

// diagnosedBusyDevice applies the sample with admin access to a device without a free slot.
func diagnosedBusyDevice(t *testing.T) { diagnose(t, "capacity: 2", "capacity: 1") }

// earlierBrokers checks that the status of a Configuration shows that its brokers cannot run.
func earlierBrokers(t *testing.T) {
	apply(t, echoConfiguration("e2e-earlier", 1, broker, "foo0"))
	message := awaitCondition(t, "default", "e2e-earlier", akriv0.ConditionBrokersRunning, metav1.ConditionFalse, "Unschedulable")
	require.Contains(t, message, "Insufficient akri.sh/e2e-earlier-8120fe")
	brokenCluster{
		object: "configuration e2e-earlier",
		cause:  string(explain.FeatureMissing), message: "only through ResourceClaims", remedy: "kubectl label node",
	}.check(t)
}

// earlierForms uses a device on a node with device plugins, where brokers run, and on another one.
func earlierForms(t *testing.T) {
	const instance = "e2e-earlier-forms-8120fe"
	nodes := akri.Cluster.Nodes()
	setResources(t, nodes[1], akriv0.ResourcesDevicePlugin)
	t.Cleanup(func() { setResources(t, nodes[1], "") })
	apply(t, echoConfiguration("e2e-earlier-forms", 2, "", "foo0"))
	awaitAllocatable(t, nodes[1].Name(), instance, 2)
	apply(t, selecting(nodes[1], ownPod("plugin", instance)))
	awaitReadyPod(t, "default", "plugin")
	apply(t, namedClaim(instance))
	apply(t, selecting(nodes[0], claimingPod("claim", instance)))
	awaitReadyPod(t, "default", "claim")
	require.ElementsMatch(t, []string{nodes[1].Name(), "D:" + nodes[0].Name()},
		slotHolders(instances(t, "default", "e2e-earlier-forms")[0].Spec.DeviceUsage))
	for _, name := range []string{"plugin", "claim"} {
		require.NoError(t, akri.Kubernetes.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	awaitFree(t, instance)
}

// uninstallEarlier uninstalls Akri while a broker waits, because its resource has no device.
func uninstallEarlier(t *testing.T) {
	apply(t, echoConfiguration("e2e-gone", 1, broker, "foo0"))
	awaitBrokersOf(t, "e2e-gone", "foo0", func(pods []corev1.Pod) bool { return len(pods) == 1 })
	uninstallWithSlices(t)
}
