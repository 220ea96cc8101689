package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// echoConfiguration returns a Configuration of debug-echo with one device for each description.
func echoConfiguration(name string, capacity int, brokerSpec string, descriptions ...string) string {
	text := `
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: ` + name + `, namespace: default}
spec:
  discoveryHandler:
    name: debugEcho
    discoveryDetails: |
      descriptions: ["` + strings.Join(descriptions, `", "`) + `"]
  capacity: ` + strconv.Itoa(capacity) + "\n"
	if brokerSpec != "" {
		text += "  brokerSpec:" + brokerSpec + "\n"
	}
	return text
}

func sharedDevice(t *testing.T) {
	apply(t, echoConfiguration("e2e-echo", 2, broker, "foo0", "foo1"))
	awaitInstances(t, "default", "e2e-echo", "e2e-echo-8120fe", "e2e-echo-a19705")
	pods := awaitBrokers(t, "default", "e2e-echo", 4)
	for _, pod := range pods {
		instance := pod.Labels["akri.sh/instance"]
		require.Equal(t, pod.Spec.NodeName+"-"+instance+"-pod", pod.Name)
		require.NotEmpty(t, query(t, &pod).Env["DEBUG_ECHO_DESCRIPTION_"+strings.ToUpper(akriv0.InstanceDigest(instance))])
	}
	for _, instance := range instances(t, "default", "e2e-echo") {
		require.True(t, instance.Spec.Shared)
		require.ElementsMatch(t, []string{"node-a", "node-b"}, instance.Spec.Nodes)
		require.ElementsMatch(t, []string{"node-a", "node-b"}, holderNodes(instance.Spec.DeviceUsage), "each node must hold a slot")
		output, err := akri.Kubectl(t.Context(), "", "get", "akrii", "--no-headers", instance.Name)
		require.NoError(t, err)
		columns := strings.Fields(output)
		require.Equal(t, []string{instance.Name, "e2e-echo", instance.Annotations[akriv0.DeviceIDAnnotation], "true"}, columns[:4])
		require.Equal(t, []string{"2", "0"}, columns[5:7], "used and free slots")
	}
	await(t, "the verdicts in the columns", func(ctx context.Context) error {
		output, err := akri.Kubectl(ctx, "", "get", "akric", "--no-headers", "e2e-echo")
		if columns := strings.Fields(output); err == nil && !slices.Equal(columns[:6], []string{"e2e-echo", "debugEcho", "2", "2", "Works", "Works"}) {
			err = fmt.Errorf("the columns are %q", columns)
		}
		return err
	})
}
