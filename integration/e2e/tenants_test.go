package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// tenantObjects are the user e2e-tenant, who may administer one namespace and write Configurations
// there, and the Configuration and the Secret of another user.
const tenantObjects = `
apiVersion: v1
kind: Namespace
metadata: {name: e2e-tenant, labels: {pod-security.kubernetes.io/enforce: baseline}}
---
apiVersion: v1
kind: Namespace
metadata: {name: e2e-owner}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: admin, namespace: e2e-tenant}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: e2e-tenant}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: configurations, namespace: e2e-tenant}
rules: [{apiGroups: [akri.sh], resources: [configurations], verbs: ["*"]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: configurations, namespace: e2e-tenant}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: configurations}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: e2e-tenant}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: another, namespace: e2e-tenant}
---
apiVersion: v1
kind: Secret
metadata: {name: camera, namespace: e2e-owner}
stringData: {password: secret}
---
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: e2e-owner, namespace: e2e-owner}
spec:
  discoveryHandler: {name: debugEcho, discoveryDetails: 'descriptions: [foo0]'}
  allowedNamespaces: [e2e-owner]
`

// useOfDebugEcho lets the tenant use one handler.
const useOfDebugEcho = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: use-debug-echo, namespace: e2e-tenant}
rules: [{apiGroups: [akri.sh], resources: [discoveryhandlers], resourceNames: [debugEcho], verbs: [use]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: use-debug-echo, namespace: e2e-tenant}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: use-debug-echo}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: e2e-tenant}]
`

// asTenant runs kubectl as the user e2e-tenant.
func asTenant(ctx context.Context, manifest string, arguments ...string) error {
	_, err := akri.Kubectl(ctx, manifest, append(arguments, "--as=e2e-tenant", "-f", "-")...)
	return err
}

func ofTenant(name, spec string) string {
	return "{apiVersion: akri.sh/v0, kind: Configuration, metadata: {name: " + name + ", namespace: e2e-tenant}, spec: {" + spec + "}}"
}

func podOfTenant(spec string) string {
	return "{apiVersion: v1, kind: Pod, metadata: {name: pod, namespace: e2e-tenant}, spec: {" + spec + "}}"
}

// tenants checks that the administrator of one namespace gets no right through Akri that it does
// not have without it.
func tenants(t *testing.T) {
	apply(t, tenantObjects)
	awaitInstances(t, "e2e-owner", "e2e-owner", "e2e-owner-8120fe")
	inOrder(t,
		tenantUsesHandlers,
		tenantReadsSecrets,
		tenantRunsBrokers,
		tenantTakesName,
		tenantFloodsWebhook,
		tenantUsesDevices,
	)
}

// tenantUsesHandlers tries a rule for the host's disk and to lead credentials to a forged camera.
// It cannot grant itself the use of a handler, but an administrator can.
func tenantUsesHandlers(t *testing.T) {
	disk := ofTenant("e2e-disk", `discoveryHandler: {name: udev, discoveryDetails: 'udevRules: [SUBSYSTEM=="block"]'}`)
	require.ErrorContains(t, asTenant(t.Context(), disk, "apply"),
		`user "e2e-tenant" cannot use discoveryhandlers.akri.sh/udev --namespace e2e-tenant`)

	camera := ofTenant("e2e-forged", `discoveryHandler: {name: onvif, discoveryProperties: [`+
		`{name: password_default, valueFrom: {secretKeyRef: {name: camera, namespace: e2e-owner, key: password}}}]}`)
	err := asTenant(t.Context(), camera, "apply")
	require.ErrorContains(t, err, `user "e2e-tenant" cannot use discoveryhandlers.akri.sh/onvif --namespace e2e-tenant`)
	require.ErrorContains(t, err, `get secrets/camera --namespace e2e-owner`)

	echo := ofTenant("e2e-tenant", "discoveryHandler: {name: debugEcho}")
	require.ErrorContains(t, asTenant(t.Context(), echo, "apply"), `cannot use discoveryhandlers.akri.sh/debugEcho`)
	require.ErrorContains(t, asTenant(t.Context(), useOfDebugEcho, "apply"), "attempting to grant RBAC permissions not currently held")
	require.NoError(t, akri.ApplyText(t.Context(), useOfDebugEcho))
	await(t, "the right to use the handler", func(ctx context.Context) error { return asTenant(ctx, echo, "apply") })
}

func tenantReadsSecrets(t *testing.T) {
	echo := ofTenant("e2e-tenant", `discoveryHandler: {name: debugEcho, discoveryProperties: [`+
		`{name: password, valueFrom: {secretKeyRef: {name: camera, namespace: e2e-owner, key: password}}}]}`)
	require.ErrorContains(t, asTenant(t.Context(), echo, "apply"),
		`user "e2e-tenant" cannot get secrets/camera --namespace e2e-owner`)
}

// tenantRunsBrokers compares Pods that the tenant creates with brokers that Akri creates for it.
// Pod Security applies to both. Who may create Pods can use each service account of the namespace.
func tenantRunsBrokers(t *testing.T) {
	for name, spec := range map[string]string{
		"e2e-privileged": "containers: [{name: a, image: a, securityContext: {privileged: true}}]",
		"e2e-host-path":  "containers: [{name: a, image: a}], volumes: [{name: host, hostPath: {path: /}}]",
	} {
		const refusal = `violates PodSecurity "baseline:latest"`
		require.ErrorContains(t, asTenant(t.Context(), podOfTenant(spec), "create", "--dry-run=server"), refusal)
		configuration := ofTenant(name, "discoveryHandler: {name: debugEcho, discoveryDetails: 'descriptions: [foo0]'}, brokerSpec: {brokerPodSpec: {"+spec+"}}")
		require.NoError(t, asTenant(t.Context(), configuration, "apply"))
		requireCause(t, "e2e-tenant", name, akriv0.ReasonBrokerRefused, refusal)
	}
	account := podOfTenant("serviceAccountName: another, containers: [{name: a, image: a}]")
	require.NoError(t, asTenant(t.Context(), account, "create", "--dry-run=server"))
}

func tenantTakesName(t *testing.T) {
	instance := ofTenant("e2e-owner-8120fe", "discoveryHandler: {name: debugEcho}")
	require.NoError(t, asTenant(t.Context(), instance, "apply"))
	awaitCondition(t, "e2e-tenant", "e2e-owner-8120fe", akriv0.ConditionDevicesAccepted, metav1.ConditionFalse, akriv0.ReasonNameTaken)
}

func tenantFloodsWebhook(t *testing.T) {
	var fields strings.Builder
	for i := range 20_000 {
		fmt.Fprintf(&fields, `"f%d": 1, `, i)
	}
	spec := `"discoveryHandler": {"name": "debugEcho"}, "brokerSpec": {"brokerPodSpec": {"containers": [{` + fields.String() + `"name": "a"}]}}`
	manifest := `{"apiVersion": "akri.sh/v0", "kind": "Configuration", "metadata": {"name": "e2e-flood", "namespace": "e2e-tenant"}, "spec": {` + spec + `}}`
	err := asTenant(t.Context(), manifest, "create", "--validate=false")
	require.ErrorContains(t, err, "containers[0].f0: Forbidden: unknown field")
	require.ErrorContains(t, err, "spec: Invalid value: has 19950 more problems")
}

// tenantUsesDevices requests devices whose Configuration allows only its own namespace.
func tenantUsesDevices(t *testing.T) {
	for _, resource := range []string{"e2e-owner-8120fe", "e2e-owner"} {
		pod := podOfTenant("containers: [{name: a, image: a, resources: {limits: {akri.sh/" + resource + `: "1"}}}]`)
		await(t, "the refusal of a Pod", func(ctx context.Context) error {
			err := asTenant(ctx, pod, "create", "--dry-run=server")
			if err == nil {
				return errors.New("the Pod is accepted")
			}
			if want := `Pods of namespace "e2e-tenant" may not use akri.sh/` + resource + ";"; !strings.Contains(err.Error(), want) {
				return fmt.Errorf("no %q in %w", want, err)
			}
			return nil
		})
		_, err := akri.Kubectl(t.Context(), strings.Replace(pod, "e2e-tenant", "e2e-owner", 1), "create", "--dry-run=server", "-f", "-")
		require.NoError(t, err)
	}
}
