package brokercontroller_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"akri.sh/libs/admin"
	"akri.sh/libs/service"
	brokercontroller "akri.sh/services/broker-controller"
	"akri.sh/services/broker-controller/internal/namespaces"
)

// enforce makes a controller write the policies.
func enforce(c *brokercontroller.Config) {
	c.AllowedNamespaces = []string{namespaces.Pods, namespaces.Claims}
}

// installPolicies creates the policies and their bindings as the chart does. The returned function
// deletes them. The API server uses a deleted policy for up to a second more, so each test has
// Configurations with other names.
func (e *testEnv) installPolicies() (remove func()) {
	e.Helper()
	text, err := os.ReadFile("../../charts/akri/charts/broker-controller/templates/allowednamespaces.yaml")
	require.NoError(e, err)
	var manifests strings.Builder
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, "{{") { // the conditions and the labels
			manifests.WriteString(line)
		}
	}
	policies := e.clientset.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	bindings := e.clientset.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	documents := strings.Split(manifests.String(), "\n---\n")
	require.Len(e, documents, 4)
	for i := 0; i < len(documents); i += 2 {
		policy, binding := &admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}
		require.NoError(e, yaml.UnmarshalStrict([]byte(documents[i]), policy))
		require.NoError(e, yaml.UnmarshalStrict([]byte(documents[i+1]), binding))
		_, err = policies.Create(e.Context(), policy, metav1.CreateOptions{})
		require.NoError(e, err)
		_, err = bindings.Create(e.Context(), binding, metav1.CreateOptions{})
		require.NoError(e, err)
	}
	return func() {
		for _, name := range []string{namespaces.Pods, namespaces.Claims} {
			require.NoError(e, bindings.Delete(e.Context(), name, metav1.DeleteOptions{}))
			require.NoError(e, policies.Delete(e.Context(), name, metav1.DeleteOptions{}))
		}
	}
}

// createPod creates a Pod in the namespace without storing it.
func (e *testEnv) createPod(namespace, spec string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod", Namespace: namespace}}
	require.NoError(e, yaml.UnmarshalStrict([]byte("{"+spec+"}"), &pod.Spec))
	_, err := e.clientset.CoreV1().Pods(namespace).Create(e.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

func (e *testEnv) eventuallyRefused(namespace, spec, message string) {
	e.Helper()
	require.EventuallyWithT(e, func(c *assert.CollectT) {
		require.ErrorContains(c, e.createPod(namespace, spec), message)
	}, time.Minute, 100*time.Millisecond)
}

func requests(resource string) string {
	return `containers: [{name: a, image: a}, {name: b, image: b, resources: {limits: {cpu: 1, akri.sh/` + resource + `: 1}}}]`
}

// TestAllowedNamespaces checks which Pods the API server refuses.
func TestAllowedNamespaces(t *testing.T) {
	e := newTestEnv(t)
	defer e.installPolicies()()
	tenant, other := newTestEnv(t).namespace, newTestEnv(t).namespace
	require.NoError(t, e.createPod(other, requests("debug-camera-8120fe")), "nothing is restricted")
	e.configuration("debug.camera", `{allowedNamespaces: [`+tenant+`]}`)
	e.start(enforce)

	e.eventuallyRefused(other, requests("debug-camera-8120fe"), fmt.Sprintf(`Pods of namespace %q may not use akri.sh/debug-camera-8120fe; `+
		`an author of its Configuration can add the namespace to spec.allowedNamespaces`, other))
	initContainer := `initContainers: [{name: i, image: a, resources: {limits: {akri.sh/debug-camera-8120fe: 1}}}], containers: [{name: a, image: a}]`
	for name, c := range map[string]struct {
		namespace, pod string
		refused        bool
	}{
		"Configuration":                     {other, requests("debug.camera"), true},
		"Instance with a longer digest":     {other, requests("debug-camera-8120fex55e2ca"), true},
		"init container":                    {other, initContainer, true},
		"own namespace":                     {e.namespace, requests("debug-camera-8120fe"), false},
		"allowed namespace":                 {tenant, initContainer, false},
		"longer name":                       {other, requests("debug-camera-8120fe0"), false},
		"name that is too long":             {other, requests("debug-camera-8120fex55e2ca0"), false},
		"Instance of another Configuration": {other, requests("camera-8120fe"), false},
		"Configuration with a longer name":  {other, requests("debug-camera-usb"), false},
		"short name":                        {other, requests("a"), false},
		"resource of another vendor":        {other, `containers: [{name: a, image: a, resources: {limits: {example.com/debug-camera: 1}}}]`, false},
		"no resources":                      {other, `containers: [{name: a, image: a}]`, false},
	} {
		err := e.createPod(c.namespace, c.pod)
		if c.refused {
			require.ErrorContains(t, err, "may not use akri.sh/debug", name)
		} else {
			require.NoError(t, err, name)
		}
	}
}

// TestAllowedNamespacesOfClaims checks which allocations of the scheduler the API server refuses.
func TestAllowedNamespacesOfClaims(t *testing.T) {
	e := newTestEnv(t)
	defer e.installPolicies()()
	other := newTestEnv(t).namespace
	e.configuration("usb-camera", `{allowedNamespaces: [`+e.namespace+`]}`)
	e.start(enforce)
	for _, namespace := range []string{e.namespace, other} {
		claim := &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: "claim"}}
		claim.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "akri.sh"}}}
		claims := e.clientset.ResourceV1().ResourceClaims(namespace)
		_, err := claims.Create(t.Context(), claim, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, claims.Delete(context.Background(), "claim", metav1.DeleteOptions{})) })
	}
	allocate := func(namespace, driver, instance, device string) error {
		patch := fmt.Sprintf(`{"status": {"allocation": {"devices": {"results": [{"request": "r", "driver": %q, "pool": %q, "device": %q}]}}}}`,
			driver, "default/"+instance, device)
		_, err := e.clientset.ResourceV1().ResourceClaims(namespace).Patch(t.Context(), "claim", types.MergePatchType, []byte(patch),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
		return err
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.ErrorContains(c, allocate(other, "akri.sh", "usb-camera-8120fe", "usb-camera-8120fe"),
			fmt.Sprintf(`ResourceClaims of namespace %q may not use default/usb-camera-8120fe; an author of its Configuration can add`, other))
	}, time.Minute, 100*time.Millisecond)
	require.ErrorContains(t, allocate(other, "akri.sh", "usb-camera-8120fe", "usb-camera-8120fe-1"), "may not use", "the device of a slot")
	const long = "usb-camera-8120fex55e2ca"
	require.ErrorContains(t, allocate(other, "akri.sh", long, long), "may not use")
	require.NoError(t, allocate(e.namespace, "akri.sh", "usb-camera-8120fe", "usb-camera-8120fe"))
	require.NoError(t, allocate(other, "akri.sh", "camera-8120fe", "camera-8120fe"), "a device of another Configuration")
	require.NoError(t, allocate(other, "gpu.example.com", "usb-camera-8120fe", "usb-camera-8120fe"), "a device of another driver")
}

func TestUnknownPolicy(t *testing.T) {
	config := brokercontroller.Config{PendingMax: time.Minute, BrokerStartTimeout: time.Minute, AllowedNamespaces: []string{"other"}}
	config.REST = server.Config()
	_, err := brokercontroller.New(config, service.Env{Log: zap.NewNop(), Metrics: prometheus.NewRegistry(), Health: &admin.Health{}})
	require.ErrorContains(t, err, `--allowed-namespaces: policy "other" is unknown; the policies are "akri-allowed-namespaces" and "akri-allowed-namespaces-of-claims"`)
}

// TestReinstalledPolicy deletes the policy and creates it again while the API server runs.
func TestReinstalledPolicy(t *testing.T) {
	e := newTestEnv(t)
	remove := e.installPolicies()
	other := newTestEnv(t).namespace
	e.start(enforce)
	e.configuration("before", `{allowedNamespaces: [`+e.namespace+`]}`)
	e.eventuallyRefused(other, requests("before"), "may not use akri.sh/before")
	remove()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.NoError(c, e.createPod(other, requests("before")))
	}, time.Minute, 100*time.Millisecond)
	defer e.installPolicies()()
	e.configuration("after", `{allowedNamespaces: [`+e.namespace+`]}`)
	e.eventuallyRefused(other, requests("before"), "may not use akri.sh/before")
	e.eventuallyRefused(other, requests("after"), "may not use akri.sh/after")
}

// TestPolicyIsKeptUpToDate also checks that the policy has no rules while nothing is restricted.
func TestPolicyIsKeptUpToDate(t *testing.T) {
	e := newTestEnv(t)
	defer e.installPolicies()()
	policies := e.clientset.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	e.configuration("camera", `{allowedNamespaces: [tenant]}`)
	e.start(enforce)
	eventually := func(expected string) {
		t.Helper()
		e.eventually(func() bool {
			current, err := policies.Get(t.Context(), namespaces.Pods, metav1.GetOptions{})
			require.NoError(t, err)
			return len(current.Spec.Validations) == 1 && current.Spec.Variables[0].Expression == expected
		}, "the policy")
	}
	eventually(`{"camera-": "tenant ` + e.namespace + `"}`)
	e.edit("camera", `{allowedNamespaces: [tenant, other]}`)
	eventually(`{"camera-": "other tenant ` + e.namespace + `"}`)
	_, err := policies.Patch(t.Context(), namespaces.Pods, types.MergePatchType, []byte(`{"spec": {"validations": null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	eventually(`{"camera-": "other tenant ` + e.namespace + `"}`)
	e.edit("camera", `{}`)
	e.eventually(func() bool {
		current, err := policies.Get(t.Context(), namespaces.Pods, metav1.GetOptions{})
		require.NoError(t, err)
		return len(current.Spec.Validations) == 0 && len(current.Spec.Variables) == 0
	}, "a policy without rules")
}

// TestManyAllowedNamespaces checks more rules than one expression of CEL can have, and more than a
// policy can have. Those of another namespace are enforced.
func TestManyAllowedNamespaces(t *testing.T) {
	e := newTestEnv(t)
	defer e.installPolicies()()
	victim := newTestEnv(t)
	other := newTestEnv(t).namespace
	names := make([]string, 64)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%02d", strings.Repeat("n", 60), i)
	}
	for i := range 400 {
		e.configuration(fmt.Sprintf("camera-%03d", i), `{allowedNamespaces: [`+strings.Join(names, ", ")+`]}`)
	}
	victim.configuration("victim", `{allowedNamespaces: [`+victim.namespace+`]}`)
	e.start(enforce)

	for _, name := range []string{"camera-000", "camera-049", "victim"} {
		e.eventuallyRefused(other, requests(name), "may not use akri.sh/"+name)
	}
	require.NoError(t, e.createPod(e.namespace, requests("camera-049")))
	require.NoError(t, victim.createPod(victim.namespace, requests("victim")))
}
