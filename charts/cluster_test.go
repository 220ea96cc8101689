package charts_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/kube/kubetest"
)

// TestLifecycle installs, upgrades and uninstalls the charts on an API server without nodes. No Pod
// runs, so it skips the cleanup hook. The chart installs the CRDs, so the API server is its own.
func TestLifecycle(t *testing.T) {
	t.Parallel()
	own, err := kubetest.StartWithoutCRDs(t.Context())
	require.NoError(t, err)
	t.Cleanup(own.Stop)
	access := []string{"--kubeconfig", kubeconfigOf(t, own), "--namespace", "akri-system"}
	helm := func(arguments ...string) string {
		t.Helper()
		output, err := run(t, "helm", append(arguments, access...)...)
		require.NoError(t, err)
		return output
	}
	kubectl := func(arguments ...string) string {
		t.Helper()
		output, err := run(t, "kubectl", append(arguments, access[:2]...)...)
		require.NoError(t, err)
		return output
	}

	// The cluster has no CRD of PodMonitors: all values but prometheus.
	helm("install", "akri", "akri", "--create-namespace", "--values", "testdata/brokers.values.yaml")
	require.Equal(t, "akri-custom akri-debug-echo akri-onvif akri-opcua akri-udev",
		kubectl("get", "akric", "-n", "akri-system", "-o", "jsonpath={.items[*].metadata.name}"))

	require.Equal(t, "configurations.akri.sh instances.akri.sh", kubectl("get", "crds", "-o", "jsonpath={.items[*].metadata.name}"))

	kubectl("wait", "flowschema/akri-instance-writer", "--for=condition=Dangling=False", "--timeout=30s")

	rules := `{"spec": {"variables": [{"name": "allowed", "expression": "{}"}], "validations": [{"expression": "size(variables.allowed) == 0"}]}}`
	kubectl("patch", "validatingadmissionpolicy", "akri-allowed-namespaces", "--type=merge", "--patch", rules)
	helm("upgrade", "akri", "akri", "--values", "testdata/agent.values.yaml")
	require.Equal(t, "allowed size(variables.allowed) == 0", kubectl("get", "validatingadmissionpolicy", "akri-allowed-namespaces",
		"-o", "jsonpath={.spec.variables[*].name} {.spec.validations[*].expression}"), "an upgrade keeps what broker-controller wrote")
	require.Equal(t, "akri-agent-daemonset", kubectl("get", "daemonsets", "-n", "akri-system", "-o", "jsonpath={.items[*].metadata.name}"))

	helm("upgrade", "akri", "akri", "--values", "testdata/options.values.yaml", "--set", "prometheus.enabled=false")
	require.Empty(t, kubectl("get", "akric", "-A", "-o", "name"))
	require.Equal(t, "3", kubectl("get", "deployment", "akri-instance-writer", "-n", "akri-system", "-o", "jsonpath={.spec.replicas}"))

	helm("upgrade", "--install", "akri-crds", "akri-crds", "--take-ownership")
	kubectl("apply", "--validate=strict", "-f", filepath.Join("..", "deploy", "samples"))

	// An upgrade keeps the decision. Helm takes over the DeviceClass that dra-controller has
	// created if the chart is to create it.
	helm("upgrade", "akri", "akri", "--reset-values")
	kubectl("patch", "configmap", "akri-resources", "-n", "akri-system", "--type=merge", "--patch", `{"data": {"resources": "dra"}}`)
	helm("upgrade", "akri", "akri", "--set", "dra-controller.logLevel=debug")
	require.Equal(t, "dra", kubectl("get", "configmap", "akri-resources", "-n", "akri-system", "-o", "jsonpath={.data.resources}"))
	class := filepath.Join(t.TempDir(), "class.yaml")
	require.NoError(t, os.WriteFile(class, []byte(rootClass), 0o600))
	kubectl("create", "-f", class)

	// No Pod runs, so the hook before the uninstallation fails. The test deletes the Deployment
	// that the hook would delete.
	helm("upgrade", "akri", "akri", "--values", "testdata/dra.values.yaml")
	kubectl("delete", "deployment", "akri-controller-deployment", "-n", "akri-system")
	_, err = run(t, "helm", append([]string{"uninstall", "akri", "--timeout", "5s"}, access...)...)
	require.ErrorContains(t, err, "akri-cleanup-brokers")
	helm("rollback", "akri", "6")
	kubectl("get", "deployment", "akri-controller-deployment", "-n", "akri-system")

	helm("uninstall", "akri", "--no-hooks")
	helm("uninstall", "akri-crds")
	require.Equal(t, "configuration-level debug-echo debug-echo-job dra-diagnostics dra-follow dra-pair-accelerator dra-pair-camera dra-preferred dra-selector instance-level onvif onvif-video opcua udev-null udev-usb-camera udev-usb-serial udev-zram",
		kubectl("get", "akric", "-A", "-o", "jsonpath={.items[*].metadata.name}"), "CRDs and Configurations outside of the release remain")
	require.Empty(t, kubectl("get", "all,sa,clusterroles,clusterrolebindings,roles,rolebindings,pdb,flowschemas,networkpolicies,secrets,configmaps,validatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings", "-A",
		"-l", "app.kubernetes.io/part-of=akri", "-o", "name"))

	upgradeOfDefault(t, helm, kubectl)
	notes := installAsInReadme(t, access[:2]) // CRDs exist
	require.Contains(t, notes, "  kubectl akri status\n", "a command that shows whether Akri runs, because the notes are the same with --wait")
	require.Contains(t, notes, " is installed in namespace ")
	require.NotContains(t, notes, "is starting", "with --wait Helm returns when the services run")
	applyConfigurationOfNotes(t, kubectl, notes)
}

// upgradeOfDefault upgrades a release of a chart whose default is device plugins. The values of
// that chart keep them, and those of this one let the cluster decide.
func upgradeOfDefault(t *testing.T, helm, kubectl func(...string) string) {
	t.Helper()
	earlier := filepath.Join(t.TempDir(), "akri")
	require.NoError(t, os.CopyFS(earlier, os.DirFS("akri")))
	values, err := os.ReadFile("akri/values.yaml")
	require.NoError(t, err)
	require.Contains(t, string(values), "  resources: auto\n")
	former := strings.Replace(string(values), "  resources: auto\n", "  resources: devicePlugin\n", 1)
	require.NoError(t, os.WriteFile(filepath.Join(earlier, "values.yaml"), []byte(former), 0o600))

	record := func() string {
		return kubectl("get", "configmap", "akri-resources", "-n", "akri-system", "-o", "name", "--ignore-not-found")
	}
	helm("install", "akri", earlier)
	helm("upgrade", "akri", "akri", "--reuse-values")
	require.Empty(t, record())
	helm("upgrade", "akri", "akri", "--reset-then-reuse-values")
	require.NotEmpty(t, record())
	helm("uninstall", "akri", "--no-hooks")
}

// rootClass is the DeviceClass that dra-controller creates.
const rootClass = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata:
  name: akri.sh
  labels: {app.kubernetes.io/managed-by: Helm}
  annotations: {meta.helm.sh/release-name: akri, meta.helm.sh/release-namespace: akri-system}
spec:
  selectors: [{cel: {expression: device.driver == "akri.sh"}}]
`

// installAsInReadme runs the command of the README that installs Akri, and returns the notes. It
// does not wait, because no Pod runs.
func installAsInReadme(t *testing.T, access []string) (notes string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "README.md"))
	require.NoError(t, err)
	_, command, found := strings.Cut(string(text), "\nhelm install ")
	require.True(t, found)
	command, _, _ = strings.Cut(command, "\n")
	arguments := strings.Fields(strings.Replace(strings.TrimSuffix(command, " --wait"), "charts/akri", "akri", 1))
	notes, err = run(t, "helm", slices.Concat([]string{"install"}, arguments, access)...)
	require.NoError(t, err)
	return notes
}

// applyConfigurationOfNotes checks that the API server accepts the Configuration in NOTES.txt.
func applyConfigurationOfNotes(t *testing.T, kubectl func(...string) string, notes string) {
	t.Helper()
	_, configuration, _ := strings.Cut(notes, "<<EOF\n")
	configuration, _, found := strings.Cut(configuration, "\nEOF\n")
	require.True(t, found, notes)
	file := filepath.Join(t.TempDir(), "configuration.yaml")
	require.NoError(t, os.WriteFile(file, []byte(configuration), 0o600))
	kubectl("apply", "--validate=strict", "-f", file)
	require.Equal(t, "debug-echo", kubectl("get", "akric", "-n", "akri-system", "-o", "jsonpath={.items[*].metadata.name}"))
}
