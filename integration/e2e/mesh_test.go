package e2e_test

import (
	"context"
	"flag"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"akri.sh/integration/devices"
)

// scenario is a named subtest.
type scenario struct {
	name string
	run  func(*testing.T)
}

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
	if !parallel(t, "embedded handlers", []scenario{
		{"OPC UA servers", opcuaServers},
		{"camera with a rotated password", authenticatedCamera},
	}) {
		return
	}
	inOrder(t, slices.Concat(
		[]scenario{
			{"hanging handler", hangingHandler},
			{"restarted node", nodeRestart},
			{"killed agent", func(t *testing.T) { killEach(t, selected.services) }},
		},
		selected.own,
		[]scenario{{"uninstall", uninstall}},
	))
}

// allScenarios runs all scenarios on one installation: first the independent ones in parallel,
// then, one by one, those that break or change the installation or the cluster.
func allScenarios(t *testing.T) {
	t.Helper()
	require.NoError(t, akri.Install(t.Context(), selected.handlers...))
	if !parallel(t, "independent", []scenario{
		// The longest start first.
		{"certificates are renewed", rotatedCertificates},
		{"alerts fire and clear", alertsOfIncidents},
		{"the sample handler", sampleHandler},
		{"a Job is retried and runs once", failingJob},
		{"cameras", cameras},
		{"edits replace brokers one by one", editedBrokers},
		{"pods that end at once", devicePlugins("the reason of a release, idle or unconfirmed", shortPods)},
		{"OPC UA servers", opcuaServers},
		{"invalid input is refused", badInput},
		{"a handler without a first list", silentHandler},
		{"a refused pod is retried", devicePlugins("the kubelet refuses a Pod", retriedPod)},
		{"a full device rejects further pods", devicePlugins("the kubelet refuses Pods", crowdedDevice)},
		{"hot-plug", pluggedDevice},
		{"shared device", sharedDevice},
		{"devices with one digest", collidingDevices},
		{"devices of two nodes with one digest", collidingNodes},
		{"user pods", ownPods},
		{"devices of several containers", devicePlugins("virtual devices", severalDevices)},
		{"one pod uses both resource levels", devicePlugins("the resources in the status of nodes", bothLevels)},
		{"the device with the most free slots", devicePlugins("the policy of config-plugin-allocator", mostFreeDevice)},
		{"changed capacity", changedCapacity},
		{"changed device", changedDevice},
		{"recreated Configuration", recreatedConfiguration},
		{"two Configurations with the same name", sameName},
		{"pods wait for devices", devicePlugins("virtual devices", waitingPods)},
		{"a denied pod reports the reason", devicePlugins("the kubelet refuses a Pod", deniedPod)},
		{"Services of brokers", servicesOfBrokers},
		{"the webhook reports all mistakes", rejectedByWebhook},
		{"old YAML names the fields of today", oldYAML},
		{"broker without an image", brokerWithoutImage},
		{"broker that a quota refuses", brokerBeyondQuota},
		{"a deleted broker is replaced", deletedBroker},
		{"brokers follow their devices", brokersThatChange},
		{"samples of the README", samplesOfTheReadme},
		{"node services have no rights", devicePlugins("dra-kubelet-plugin may get ResourceClaims", noNodeRights)},
		{"a node gets the properties of its handlers", propertiesOfOwnHandlers},
		{"a tenant gets no more than it has", tenants},
		{"callers of instance-writer are identified", untrustedCallers},
		{"hostile handler", hostileHandler},
		{"disk that the node uses", diskInUse},
		{"sample of USB cameras", cameraSample},
		{"sample of USB serial adapters", serialSample},
		{"sample of OPC UA servers", opcuaSample},
		{"explain names the cause", explainedCauses},
		{"a report without secrets", reportedProblem},
		{"watch shows a device", watchedDevice},
		{"try finds devices", tried},
	}) {
		return
	}
	// The first does not need broker-controller, and the second affects only broker-controller.
	if !parallel(t, "pairs", []scenario{
		{"a recreated pod gets the device again", devicePlugins("the reason of a release, idle or unconfirmed", recreatedPods)},
		{"killed leader of broker-controller", leaderKilled},
	}) {
		return
	}
	inOrder(t, slices.Concat(
		[]scenario{
			{"evicted Pods", evictedPods},
			{"console shows a device", consoleDevice},
			{"console in the cluster", consoleOfTheCluster},
			{"flapping device", flappingDevice},
			{"hanging handler", hangingHandler},
			{"restarted node", nodeRestart},
			{"killed services", killServices},
			{"slots survive failures of the cluster", slotsSurvive},
			{"scaled and replaced services", scaleAndSwap},
			{"without the webhook", withoutWebhook},
			{"explain names what is not installed", explainedInstallation},
			{"upgrade from plain text", plainPort},
		},
		selected.own,
		[]scenario{
			{"sockets move to other directories", movedSockets},
			{"Pod Security is enforced", podSecurity},
			{"several handlers of one name", moreHandlers},
			{"long timeouts, shortened", shortTimeouts},
			{"uninstall", uninstall},
		},
	))
}

// inOrder runs scenarios one by one. It stops after the first that fails: later scenarios would
// fail for the same reason.
func inOrder(t *testing.T, scenarios []scenario) {
	t.Helper()
	for _, scenario := range scenarios {
		if !t.Run(scenario.name, scenario.run) {
			return
		}
	}
}

// parallel runs scenarios in parallel, as many as the flag -parallel allows, and waits for all.
// They start in their order. With t.Parallel they would not, and a long one that starts last runs
// alone.
func parallel(t *testing.T, name string, scenarios []scenario) bool {
	t.Helper()
	limit, err := strconv.Atoi(flag.Lookup("test.parallel").Value.String())
	require.NoError(t, err)
	return t.Run(name, func(t *testing.T) {
		var group errgroup.Group
		group.SetLimit(limit)
		for _, scenario := range scenarios {
			group.Go(func() error {
				t.Run(scenario.name, scenario.run)
				return nil
			})
		}
		_ = group.Wait() // a failed scenario has failed its test
	})
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
