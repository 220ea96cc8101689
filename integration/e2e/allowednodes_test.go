package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	akriv0 "akri.sh/libs/apis/akri/v0"
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
		require.Equal(t, node, awaitBrokers(t, "default", "e2e-nodes", 1)[0].Spec.NodeName)
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
}
