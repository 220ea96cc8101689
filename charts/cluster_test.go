package charts_test

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestARealAPIServerTakesEverything installs, upgrades and uninstalls; there are no nodes, so that nothing runs and the
// hook is left out.
func TestARealAPIServerTakesEverything(t *testing.T) {
	access := []string{"--kubeconfig", kubeconfig(t), "--namespace", "akri-system"}
	helm := func(arguments ...string) string {
		t.Helper()
		output, err := program(t, "helm", append(arguments, access...)...)
		require.NoError(t, err)
		return output
	}
	kubectl := func(arguments ...string) string {
		t.Helper()
		output, err := program(t, "kubectl", append(arguments, access[:2]...)...)
		require.NoError(t, err)
		return output
	}

	kubectl("delete", "crd", "configurations.akri.sh", "instances.akri.sh")
	// PodMonitors need an operator: the options that this cluster knows.
	helm("install", "akri", "akri", "--create-namespace", // on a cluster that has no CRDs
		"--values", "testdata/brokers.values.yaml")
	require.Equal(t, "akri-custom akri-debug-echo akri-onvif akri-opcua akri-udev",
		kubectl("get", "akric", "-n", "akri-system", "-o", "jsonpath={.items[*].metadata.name}"))

	helm("upgrade", "akri", "akri", "--values", "testdata/options.values.yaml", "--set", "prometheus.enabled=false")
	require.Empty(t, kubectl("get", "akric", "-A", "-o", "name"))
	require.Equal(t, "3", kubectl("get", "deployment", "akri-instance-writer", "-n", "akri-system", "-o", "jsonpath={.spec.replicas}"))

	helm("upgrade", "akri", "akri", "--values", "testdata/agent.values.yaml") // and from several services to one
	require.Equal(t, "akri-agent-daemonset", kubectl("get", "daemonsets", "-n", "akri-system", "-o", "jsonpath={.items[*].metadata.name}"))

	helm("upgrade", "--install", "akri-crds", "akri-crds", "--take-ownership")
	kubectl("apply", "-n", "default", "--validate=strict", "-f", filepath.Join("..", "deploy", "samples"))

	helm("uninstall", "akri", "--no-hooks")
	helm("uninstall", "akri-crds")
	require.Equal(t, "configuration-level debug-echo instance-level onvif udev-null udev-zram",
		kubectl("get", "akric", "-A", "-o", "jsonpath={.items[*].metadata.name}"), "CRDs and the user's Configurations stay")
	require.Empty(t, kubectl("get", "all,sa,clusterroles,clusterrolebindings,roles,rolebindings,pdb,networkpolicies,secrets,validatingwebhookconfigurations", "-A",
		"-l", "app.kubernetes.io/part-of=akri", "-o", "name"))

	helm("install", "akri", "akri") // the CRDs are there
}
