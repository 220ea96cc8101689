package charts_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// claim is a ResourceClaim that the scheduler allocates.
const claim = `
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: claim, namespace: NAMESPACE}
spec: {devices: {requests: [{name: r, exactly: {deviceClassName: akri.sh}}]}}
`

// TestAllowedNamespacesOfClaims checks the policy for devices that the scheduler allocates.
func TestAllowedNamespacesOfClaims(t *testing.T) {
	config := kubeconfig(t)
	kubectl := func(arguments ...string) (string, error) {
		return run(t, "kubectl", append(arguments, "--kubeconfig", config)...)
	}
	write := func(text string) string {
		file := filepath.Join(t.TempDir(), "object.yaml")
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		return file
	}
	manifests, err := render(t, append(set("global.resources=dra"), "--namespace", "claims",
		"--show-only", "charts/dra-controller/templates/allowednamespaces.yaml")...)
	require.NoError(t, err)
	for _, namespace := range []string{"claims", "claims-own", "claims-other"} {
		_, err = kubectl("create", "namespace", namespace)
		require.NoError(t, err)
		_, err = kubectl("create", "-f", write(strings.ReplaceAll(claim, "NAMESPACE", namespace)))
		require.NoError(t, err)
	}
	_, err = kubectl("create", "configmap", "akri-allowed-namespaces", "-n", "claims", "--from-literal=debug-echo-=claims-own")
	require.NoError(t, err)
	_, err = kubectl("apply", "-f", write(manifests))
	require.NoError(t, err)
	allocate := func(namespace, driver, device string) error {
		patch := fmt.Sprintf(`{"status": {"allocation": {"devices": {"results": [{"request": "r", "driver": %q, "pool": "p", "device": %q}]}}}}`, driver, device)
		_, err := kubectl("patch", "resourceclaim", "claim", "-n", namespace, "--subresource=status", "--type=merge", "--dry-run=server", "--patch", patch)
		return err
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.ErrorContains(c, allocate("claims-other", "akri.sh", "debug-echo-8120fe"),
			`ResourceClaims of namespace "claims-other" may not use debug-echo-8120fe; an author of its Configuration can add`)
	}, time.Minute, 100*time.Millisecond)
	require.ErrorContains(t, allocate("claims-other", "akri.sh", "debug-echo-8120fex55e2ca"), "may not use")
	require.NoError(t, allocate("claims-own", "akri.sh", "debug-echo-8120fe"))
	require.NoError(t, allocate("claims-other", "akri.sh", "echo-8120fe"), "a device of another Configuration")
	require.NoError(t, allocate("claims-other", "gpu.example.com", "debug-echo-8120fe"), "a device of another driver")
}

// TestAllowedNamespaces checks the ValidatingAdmissionPolicy with the data that broker-controller
// publishes for a Configuration debug.echo in the namespace prod with allowedNamespaces [tenant].
func TestAllowedNamespaces(t *testing.T) {
	config := kubeconfig(t)
	kubectl := func(arguments ...string) (string, error) {
		return run(t, "kubectl", append(arguments, "--kubeconfig", config)...)
	}
	manifests, err := render(t, "--namespace", "policies", "--show-only", "charts/broker-controller/templates/allowednamespaces.yaml")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(file, []byte(manifests), 0o600))
	for _, namespace := range []string{"policies", "prod", "tenant", "other"} {
		_, err = kubectl("create", "namespace", namespace)
		require.NoError(t, err)
	}
	_, err = kubectl("apply", "-f", file)
	require.NoError(t, err)
	defer func() {
		_, err := kubectl("delete", "-f", file)
		require.NoError(t, err)
	}()
	create := func(namespace, pod string) error {
		file := filepath.Join(t.TempDir(), "pod.yaml")
		text := "{apiVersion: v1, kind: Pod, metadata: {name: pod, namespace: " + namespace + "}, spec: {" + pod + "}}"
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		_, err := kubectl("create", "--dry-run=server", "-f", file)
		return err
	}
	requests := func(resource string) string {
		return `containers: [{name: a, image: a}, {name: b, image: b, resources: {limits: {cpu: 1, akri.sh/` + resource + `: 1}}}]`
	}
	require.NoError(t, create("other", requests("debug-echo-8120fe")), "without data nothing is restricted")

	_, err = kubectl("patch", "configmap", "akri-allowed-namespaces", "-n", "policies", "--patch", `{"data": {"debug-echo-": "prod tenant"}}`)
	require.NoError(t, err)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.ErrorContains(c, create("other", requests("debug-echo-8120fe")), `Pods of namespace "other" may not use akri.sh/debug-echo-8120fe; `+
			`an author of its Configuration can add the namespace to spec.allowedNamespaces`)
	}, time.Minute, 100*time.Millisecond)
	initContainer := `initContainers: [{name: i, image: a, resources: {limits: {akri.sh/debug-echo-8120fe: 1}}}], containers: [{name: a, image: a}]`
	for name, c := range map[string]struct {
		namespace, pod string
		refused        bool
	}{
		"Configuration":                     {"other", requests("debug.echo"), true},
		"Instance with a longer digest":     {"other", requests("debug-echo-8120fex55e2ca"), true},
		"init container":                    {"other", initContainer, true},
		"own namespace":                     {"prod", requests("debug-echo-8120fe"), false},
		"allowed namespace":                 {"tenant", initContainer, false},
		"longer name":                       {"other", requests("debug-echo-8120fe0"), false},
		"name that is too long":             {"other", requests("debug-echo-8120fex55e2ca0"), false},
		"Instance of another Configuration": {"other", requests("echo-8120fe"), false},
		"Configuration with a longer name":  {"other", requests("debug-echo-camera"), false},
		"short name":                        {"other", requests("a"), false},
		"resource of another vendor":        {"other", `containers: [{name: a, image: a, resources: {limits: {example.com/debug-echo: 1}}}]`, false},
		"no resources":                      {"other", `containers: [{name: a, image: a}]`, false},
	} {
		err := create(c.namespace, c.pod)
		if c.refused {
			require.ErrorContains(t, err, "may not use akri.sh/debug", name)
		} else {
			require.NoError(t, err, name)
		}
	}
}
