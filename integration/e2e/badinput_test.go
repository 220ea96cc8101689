package e2e_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	discoveryv0 "akri.sh/proto/v0"
)

// badInput checks that each invalid input is refused and that a valid Configuration keeps its
// Instances and brokers.
func badInput(t *testing.T) {
	apply(t, echoConfiguration("e2e-good", 2, broker, "foo0"))
	awaitBrokers(t, "default", "e2e-good", 2)
	before := observe(t, "e2e-good")
	for _, refused := range []scenario{
		unknownHandler,
		badDetails,
		nothingMatched,
		malformedEndpoint,
		emptyDeviceID,
		capacityZero,
	} {
		t.Run(refused.name(t), func(t *testing.T) {
			refused(t)
			require.Equal(t, before, observe(t, "e2e-good"))
		})
	}
	apply(t, echoConfiguration("e2e-later", 1, "", "foo1"))
	awaitInstances(t, "default", "e2e-later", "e2e-later-a19705")
}

func configurationOf(name, handler, details string) string {
	return fmt.Sprintf(`
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: %s, namespace: default}
spec:
  discoveryHandler:
    name: %s
    discoveryDetails: %q
`, name, handler, details)
}

func unknownHandler(t *testing.T) {
	apply(t, configurationOf("e2e-unknown", "udve", ""))
	message := awaitCondition(t, "default", "e2e-unknown", akriv0.ConditionHandlerRegistered, metav1.ConditionFalse, akriv0.ReasonHandlerNotRegistered)
	require.Regexp(t, `^node-.*: no Discovery Handler named "udve" is registered; registered: `, message)
	// The list may also have handlers that were registered shortly before.
	require.Regexp(t, "registered: .*debugEcho.*, udev", message)
	awaitVerdict(t, "default", "e2e-unknown", akriv0.ConditionDevicesWorking, "Broken")
	awaitCondition(t, "default", "e2e-unknown", akriv0.ConditionReady, metav1.ConditionTrue, akriv0.ReasonAsExpected)
	awaitCondition(t, "default", "e2e-unknown", akriv0.ConditionDetailsAccepted, metav1.ConditionUnknown, akriv0.ReasonNoReport)
	awaitCondition(t, "default", "e2e-unknown", akriv0.ConditionDevicesFound, metav1.ConditionUnknown, akriv0.ReasonNoReport)
}

// badDetails requires that kubectl prints the text of the condition as a warning.
func badDetails(t *testing.T) {
	for name, c := range map[string]struct{ details, problem string }{
		"e2e-details": {"udevRuels: []", "udevRuels"},
		"e2e-rule":    {`udevRules: ['KERNEL=="x", RUN="sh"']`, "RUN"},
	} {
		configuration := configurationOf(name, "udev", c.details)
		output := shell(t, "kubectl apply --dry-run=server -f - <<'EOF'"+configuration+"EOF\n")
		warning := regexp.MustCompile(`(?m)^Warning: spec\.discoveryHandler\.discoveryDetails: (.+)$`).FindStringSubmatch(output)
		require.NotNil(t, warning, output)
		require.Contains(t, warning[1], c.problem)

		apply(t, configuration)
		message := awaitCondition(t, "default", name, akriv0.ConditionDetailsAccepted, metav1.ConditionFalse, akriv0.ReasonInvalidDetails)
		require.Contains(t, message, warning[1])
	}
}

// nothingMatched has two cases because an empty list of rules is valid, too.
func nothingMatched(t *testing.T) {
	for name, details := range map[string]string{"e2e-nothing": `udevRules: ['KERNEL=="e2e-no-such-device"']`, "e2e-no-rules": "udevRules: []"} {
		apply(t, configurationOf(name, "udev", details))
		message := awaitCondition(t, "default", name, akriv0.ConditionDevicesFound, metav1.ConditionFalse, akriv0.ReasonNothingMatched)
		require.Contains(t, message, "no device matches on node-")
		awaitVerdict(t, "default", name, akriv0.ConditionDevicesWorking, "NoneFound")
	}
}

func malformedEndpoint(t *testing.T) {
	err := register(t, akri.Cluster.Nodes()[0], &discoveryv0.RegisterDiscoveryHandlerRequest{Name: "bad", Endpoint: "bad.sock"})
	require.Equal(t, codes.InvalidArgument, status.Code(err), "%v", err)
	require.ErrorContains(t, err, `"bad.sock"`)
	require.ErrorContains(t, err, "absolute path")
}

func emptyDeviceID(t *testing.T) {
	handle(t, akri.Cluster.Nodes()[0], "e2eEmpty", &discoveryv0.Device{Id: ""}, &discoveryv0.Device{Id: "good"})
	apply(t, configurationOf("e2e-empty", "e2eEmpty", ""))
	message := awaitCondition(t, "default", "e2e-empty", akriv0.ConditionDevicesAccepted, metav1.ConditionFalse, akriv0.ReasonInvalidDevice)
	require.Contains(t, message, "e2eEmpty")
	require.Contains(t, message, "empty")
	awaitInstances(t, "default", "e2e-empty", instanceName("e2e-empty", "good", "", true))
}

func capacityZero(t *testing.T) {
	manifest := strings.Replace(echoConfiguration("e2e-zero", 1, "", "foo0"), "capacity: 1", "capacity: 0", 1)
	err := akri.ApplyText(t.Context(), manifest)
	require.ErrorContains(t, err, "spec.capacity")
	require.ErrorContains(t, err, "greater than or equal to 1")
}
