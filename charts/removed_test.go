package charts_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

const oldConfiguration = `
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: old, namespace: default}
spec:
  protocol: {udev: {udevRules: ['KERNEL=="video[0-9]*"']}}
  capacity: 1
  units: 5
  properties: {A: b}
  brokerPodSpec: {containers: [{name: broker, image: broker}]}
  brokerJobSpec: {}
  discoveryDetails: ""
  discoveryProperties: [{name: A, value: b}]
`

// TestRemovedFields checks the error of kubectl for every removed field.
func TestRemovedFields(t *testing.T) {
	kubectl := kubectlOn(t)
	for _, validate := range []string{"--validate=true", "--validate=false"} {
		_, err := kubectl("apply", validate, "-f", write(t, oldConfiguration))
		for name, field := range akriv0.RemovedFields {
			require.ErrorContains(t, err, "spec."+name+": Forbidden: "+field.Message(), validate)
		}
		require.ErrorContains(t, err, "spec.discoveryHandler: Required value: must name a Discovery Handler", validate)
	}
}

// TestStoredRemovedFields checks that an object that was stored with removed fields can be changed.
func TestStoredRemovedFields(t *testing.T) {
	kubectl := kubectlOn(t)
	const crd = "akri-crds/templates/configurations.yaml"
	text, err := os.ReadFile(crd)
	require.NoError(t, err)
	// An earlier version had the fields.
	_, err = kubectl("replace", "-f", write(t, strings.ReplaceAll(string(text), "rule: oldSelf.hasValue()", "rule: true || oldSelf.hasValue()")))
	require.NoError(t, err)
	old := write(t, oldConfiguration+"  discoveryHandler: {name: udev}\n")
	await := func(accepted bool, arguments ...string) {
		t.Helper()
		require.Eventually(t, func() bool { _, err := kubectl(arguments...); return (err == nil) == accepted }, time.Minute, 100*time.Millisecond)
	}
	await(true, "create", "-f", old)
	_, err = kubectl("replace", "-f", crd)
	require.NoError(t, err)
	await(false, "create", "--dry-run=server", "-f", write(t, strings.Replace(oldConfiguration, "name: old", "name: other", 1)))

	for _, change := range [][]string{
		{"label", "akric", "old", "a=b"},
		{"patch", "akric", "old", "--type=merge", "--patch", `{"spec":{"capacity":2}}`},
		{"patch", "akric", "old", "--type=merge", "--subresource=status", "--patch", `{"status":{"devices":1}}`},
		{"patch", "akric", "old", "--type=merge", "--patch", `{"spec":{"protocol":null}}`},
	} {
		_, err := kubectl(change...)
		require.NoError(t, err, "%v", change)
	}
	_, err = kubectl("patch", "akric", "old", "--type=merge", "--patch", `{"spec":{"protocol":{"onvif":{}}}}`)
	require.ErrorContains(t, err, "spec.protocol: Forbidden", "it was removed")
	_, err = kubectl("delete", "akric", "old")
	require.NoError(t, err)
}

func kubectlOn(t *testing.T) func(arguments ...string) (string, error) {
	t.Helper()
	access := []string{"--kubeconfig", kubeconfig(t), "--namespace", "default"}
	return func(arguments ...string) (string, error) {
		t.Helper()
		return run(t, "kubectl", append(arguments, access...)...)
	}
}

// write returns the path of a file with the manifest.
func write(t *testing.T, manifest string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "manifest.yaml")
	require.NoError(t, os.WriteFile(file, []byte(manifest), 0o600))
	return file
}
