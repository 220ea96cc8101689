package brokercontroller_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	brokercontroller "akri.sh/services/broker-controller"
)

const policyName = "akri-allowed-namespaces"

// installPolicy creates the policy and its binding as the chart does. The returned function deletes
// them.
func (e *testEnv) installPolicy() (remove func()) {
	e.Helper()
	text, err := os.ReadFile("../../charts/akri/charts/broker-controller/templates/allowednamespaces.yaml")
	require.NoError(e, err)
	var manifest bytes.Buffer
	for line := range strings.Lines(string(text)) {
		if !strings.Contains(line, "{{") { // the condition and the labels
			manifest.WriteString(line)
		}
	}
	ofPolicy, ofBinding, found := strings.Cut(manifest.String(), "\n---\n")
	require.True(e, found)
	policy, binding := &admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}
	require.NoError(e, yaml.UnmarshalStrict([]byte(ofPolicy), policy))
	require.NoError(e, yaml.UnmarshalStrict([]byte(ofBinding), binding))
	client := e.clientset.AdmissionregistrationV1()
	_, err = client.ValidatingAdmissionPolicies().Create(e.Context(), policy, metav1.CreateOptions{})
	require.NoError(e, err)
	_, err = client.ValidatingAdmissionPolicyBindings().Create(e.Context(), binding, metav1.CreateOptions{})
	require.NoError(e, err)
	return func() {
		require.NoError(e, client.ValidatingAdmissionPolicyBindings().Delete(e.Context(), binding.Name, metav1.DeleteOptions{}))
		require.NoError(e, client.ValidatingAdmissionPolicies().Delete(e.Context(), policy.Name, metav1.DeleteOptions{}))
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
	defer e.installPolicy()()
	tenant, other := newTestEnv(t).namespace, newTestEnv(t).namespace
	require.NoError(t, e.createPod(other, requests("debug-camera-8120fe")), "nothing is restricted")
	e.configuration("debug.camera", `{allowedNamespaces: [`+tenant+`]}`)
	e.start(func(c *brokercontroller.Config) { c.AllowedNamespaces = policyName })

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

// TestReinstalledPolicy deletes the policy and creates it again while the API server runs.
func TestReinstalledPolicy(t *testing.T) {
	e := newTestEnv(t)
	remove := e.installPolicy()
	other := newTestEnv(t).namespace
	e.start(func(c *brokercontroller.Config) { c.AllowedNamespaces = policyName })
	e.configuration("before", `{allowedNamespaces: [`+e.namespace+`]}`)
	e.eventuallyRefused(other, requests("before"), "may not use akri.sh/before")
	remove()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.NoError(c, e.createPod(other, requests("before")))
	}, time.Minute, 100*time.Millisecond)
	defer e.installPolicy()()
	e.configuration("after", `{allowedNamespaces: [`+e.namespace+`]}`)
	e.eventuallyRefused(other, requests("before"), "may not use akri.sh/before")
	e.eventuallyRefused(other, requests("after"), "may not use akri.sh/after")
}

// TestPolicyIsKeptUpToDate also checks that the policy has no rules while nothing is restricted.
func TestPolicyIsKeptUpToDate(t *testing.T) {
	e := newTestEnv(t)
	defer e.installPolicy()()
	policies := e.clientset.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	e.configuration("camera", `{allowedNamespaces: [tenant]}`)
	e.start(func(c *brokercontroller.Config) { c.AllowedNamespaces = policyName })
	eventually := func(expected string) {
		t.Helper()
		e.eventually(func() bool {
			current, err := policies.Get(t.Context(), policyName, metav1.GetOptions{})
			require.NoError(t, err)
			return len(current.Spec.Validations) == 1 && current.Spec.Variables[0].Expression == expected
		}, "the policy")
	}
	eventually(`{"camera-": "tenant ` + e.namespace + `"}`)
	e.edit("camera", `{allowedNamespaces: [tenant, other]}`)
	eventually(`{"camera-": "other tenant ` + e.namespace + `"}`)
	_, err := policies.Patch(t.Context(), policyName, types.MergePatchType, []byte(`{"spec": {"validations": null}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	eventually(`{"camera-": "other tenant ` + e.namespace + `"}`)
	e.edit("camera", `{}`)
	e.eventually(func() bool {
		current, err := policies.Get(t.Context(), policyName, metav1.GetOptions{})
		require.NoError(t, err)
		return len(current.Spec.Validations) == 0 && len(current.Spec.Variables) == 0
	}, "a policy without rules")
}

// TestManyAllowedNamespaces checks more rules than one expression of CEL can have.
func TestManyAllowedNamespaces(t *testing.T) {
	e := newTestEnv(t)
	defer e.installPolicy()()
	other := newTestEnv(t).namespace
	names := make([]string, 64)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%02d", strings.Repeat("n", 60), i)
	}
	for i := range 50 {
		e.configuration(fmt.Sprintf("camera-%d", i), `{allowedNamespaces: [`+strings.Join(names, ", ")+`]}`)
	}
	e.start(func(c *brokercontroller.Config) { c.AllowedNamespaces = policyName })
	for _, name := range []string{"camera-0", "camera-49"} {
		e.eventuallyRefused(other, requests(name), "may not use akri.sh/"+name)
		require.NoError(t, e.createPod(e.namespace, requests(name)))
	}
}
