package e2e_test

import (
	"context"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/integration/devices"
)

// TestMesh runs all scenarios with separate services. With AKRI_E2E_RESOURCES=dra it runs those
// that do not concern only device plugins with Dynamic Resource Allocation, as TestAgent does.
func TestMesh(t *testing.T) {
	selectForm(separate().resources())
	allScenarios(t)
}

// TestAgent runs the scenarios that could differ with the agent, and with AKRI_E2E_AGENT all of
// them. It follows TestMesh: while a registrar remembers an embedded handler, the lists of a
// handler of that name on the network are incomplete.
func TestAgent(t *testing.T) {
	selectForm(agent().resources())
	if os.Getenv("AKRI_E2E_AGENT") != "" {
		allScenarios(t)
		return
	}
	require.NoError(t, akri.Install(t.Context(), selected.handlers...))
	// Handlers in the process of the agent.
	if !parallel(t,
		opcuaServers,
		authenticatedCamera,
	) {
		return
	}
	inOrder(t, slices.Concat(
		[]scenario{
			hangingHandler,
			removedSockets,
			nodeRestart,
			killNodeServices,
		},
		selected.own,
		[]scenario{uninstall},
	)...)
}

// TestChanges breaks the installation, and changes it: the directories of its sockets and its
// namespaces while brokers run, and the nodes of its services. With AKRI_E2E_AGENT it does so with
// the agent. It is a test of its own so that it can run at the same time as TestMesh, on another
// cluster.
func TestChanges(t *testing.T) {
	selectForm(separate().resources())
	if os.Getenv("AKRI_E2E_AGENT") != "" {
		selectForm(agent().resources())
	}
	require.NoError(t, akri.Install(t.Context()))
	inOrder(t,
		faults,
		walkOfFaults,
		restoredEtcd,
		deletedObjects,
		movedSockets,
		podSecurity,
		separateServices,
	)
	_, err := akri.Uninstall(t.Context())
	require.NoError(t, err)
}

// allScenarios runs the other scenarios on one installation: first the independent ones in
// parallel, then, one by one, those that break or change the installation or the cluster.
func allScenarios(t *testing.T) {
	t.Helper()
	require.NoError(t, akri.Install(t.Context(), valuesForAll()...))
	if !parallel(t, independent...) {
		return
	}
	// The first does not need broker-controller, and the second affects only broker-controller.
	if !parallel(t,
		recreatedPods,
		leaderKilled,
	) {
		return
	}
	inOrder(t, slices.Concat(
		[]scenario{
			// Failures of Pods, handlers, nodes and services.
			evictedPods,
			hangingHandler,
			removedSockets,
			removedDirectories,
			nodeRestart,
			killServices,
			slotsSurvive,

			// Changes of the installation.
			scaleAndSwap,
			withoutWebhook,
			metricsAuthorization,
			explainedInstallation,
			stalledService,
		},
		selected.own,
		[]scenario{
			customHandler,
			// The endpoints of the handlers stay until the next scenario shortens the grace.
			moreHandlers,
			shortTimeouts,
			uninstall,
		},
	)...)
}

// valuesForAll returns the values with which the scenarios that run side by side are installed.
func valuesForAll() []string {
	return slices.Concat(selected.handlers, []string{"console.enabled=true"})
}

// independent are scenarios that do not affect each other. The longest start first.
var independent = []scenario{
	rotatedCertificates,
	opcuaServers,
	sampleHandler,
	tenants,
	cameras,
	editedBrokers,
	brokerBeyondQuota,
	retriedPod,
	alertsOfIncidents,
	zramDevices,
	shortPods,
	failingJob,
	explainedCauses,
	releaseOfConfigurations,
	cameraSample, // after cameras, which use the same Secret

	// Devices and their Instances.
	sharedDevice,
	collidingDevices,
	collidingNodes,
	changedDevice,
	changedCapacity,
	recreatedConfiguration,
	sameName,
	silentHandler,
	diskInUse,

	// Slots of Pods.
	ownPods,
	severalDevices,
	bothLevels,
	workloadsOfConfiguration,
	predictedNames,
	mostFreeDevice,
	waitingPods,
	crowdedDevice,
	fullDeployment,
	refusedJob,
	deniedPod,
	preemptedPod,

	// Brokers and their Services.
	brokersThatChange,
	servicesOfBrokers,
	namesOfDevices,
	brokerWithoutImage,
	deletedBroker,

	// Documents and commands.
	samplesOfTheReadme,
	serialSample,
	opcuaSample,
	reportedProblem,
	watchedDevice,
	tried,
	consoleDevice,
	consoleOfTheCluster,

	// Refusals.
	untrustedCallers,
	badInput,
	hostileHandler,
	hostileText,
	listedHandler,
	propertiesOfOwnHandlers,
	allowedNodes,
	noNodeRights,
	rejectedByWebhook,
	oldYAML,
}

// repetitions returns the number in the environment variable, or the default.
func repetitions(t *testing.T, variable string, byDefault int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return byDefault
	}
	count, err := strconv.Atoi(text)
	require.NoError(t, err, variable)
	return count
}

// plug plugs in a device until unplug or the end of the test.
func plug(t *testing.T, content string) *devices.Zram {
	t.Helper()
	zram, err := devices.PlugZram(t.Context(), content)
	require.NoError(t, err)
	t.Cleanup(func() { unplug(t, zram) })
	return zram
}

// unplug unplugs a device. It can be called again for a zram device.
func unplug(t *testing.T, device interface{ Unplug(context.Context) error }) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 10*time.Second)
	defer cancel()
	require.NoError(t, device.Unplug(ctx))
}

// apply applies a manifest and deletes it at the end of the test.
func apply(t *testing.T, manifest string) {
	t.Helper()
	require.NoError(t, akri.ApplyText(t.Context(), manifest))
	t.Cleanup(func() {
		require.NoError(t, akri.DeleteText(context.WithoutCancel(t.Context()), manifest))
	})
}
