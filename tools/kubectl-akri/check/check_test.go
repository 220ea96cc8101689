package check_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/inspect/fixture"
	"akri.sh/tools/kubectl-akri/check"
)

const fixtures = "../../../libs/inspect/explain/testdata/"

// outcomes returns the names of the results that have not passed.
func outcomes(results []check.Result) map[string]check.Outcome {
	found := map[string]check.Outcome{}
	for _, result := range results {
		if result.Outcome != check.Passed {
			found[result.Name] = result.Outcome
		}
	}
	return found
}

func TestBeforeInstallation(t *testing.T) {
	nodes := fixture.Load(t, fixtures+"healthy.yaml").Nodes
	good := check.Facts{Version: "v1.30.0", Namespace: "akri-system"}
	for _, c := range []struct {
		name  string
		empty bool
		facts func(*check.Facts)
		want  map[string]check.Outcome
	}{
		{"ready", false, func(*check.Facts) {}, map[string]check.Outcome{}},
		{"old", false, func(f *check.Facts) { f.Version = "v1.29.9" }, map[string]check.Outcome{"Kubernetes version": check.Failed}},
		{"pre-release", false, func(f *check.Facts) { f.Version = "v1.31.0-rc.1+k3s1" }, map[string]check.Outcome{}},
		{"no version", false, func(f *check.Facts) { f.Version = "" }, map[string]check.Outcome{"Kubernetes version": check.Warning}},
		{"Pod Security", false, func(f *check.Facts) { f.Enforced = "restricted" }, map[string]check.Outcome{"Pod Security": check.Failed}},
		{"rights", false, func(f *check.Facts) { f.MissingRights = []string{"create clusterroles"} }, map[string]check.Outcome{"rights to install": check.Failed}},
		{"no node", true, func(*check.Facts) {}, map[string]check.Outcome{"nodes": check.Failed}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &explain.Snapshot{NoAPI: true}
			if !c.empty {
				s.Nodes = nodes
			}
			facts := good
			c.facts(&facts)
			require.Equal(t, c.want, outcomes(check.Of(s, facts)))
		})
	}
}

func TestInstallation(t *testing.T) {
	for file, want := range map[string]map[string]check.Outcome{
		"healthy":           {},
		"tainted-node":      {"nodes": check.Warning},
		"version-skew":      {"services": check.Failed},
		"service-not-ready": {"services": check.Failed},
		"service-images":    {"services": check.Failed},
		"webhook-away":      {"services": check.Failed},
		"misspelt-handler":  {"Configuration default/camera": check.Failed},
	} {
		t.Run(file, func(t *testing.T) {
			files := []string{fixtures + "healthy.yaml"}
			if file != "healthy" {
				files = append(files, fixtures+file+".yaml")
			}
			results := check.Of(fixture.Load(t, files...), secure())
			require.Equal(t, want, outcomes(results))
			require.Equal(t, file != "healthy" && file != "tainted-node", check.HasFailed(results))
		})
	}
	s := fixture.Load(t, fixtures+"healthy.yaml")
	s.Webhooks[0].Webhooks[0].ClientConfig.CABundle = nil
	require.Equal(t, map[string]check.Outcome{"webhook": check.Failed}, outcomes(check.Of(s, secure())))
	s.Webhooks[0].Webhooks = nil
	require.Equal(t, map[string]check.Outcome{"webhook": check.Warning}, outcomes(check.Of(s, secure())))
}

// secure returns the facts of a release with default values.
func secure() check.Facts {
	return check.Facts{
		Version: "v1.36.3", Namespace: "akri-system", Weakening: map[string]string{},
		Policy: &admissionregistrationv1.ValidatingAdmissionPolicy{},
		Binding: &admissionregistrationv1.ValidatingAdmissionPolicyBinding{Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: check.AuthorsPolicy, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		}},
	}
}

// TestSecurity checks what follows from the values of the release and from the policy for authors.
func TestSecurity(t *testing.T) {
	s := fixture.Load(t, fixtures+"healthy.yaml")
	const values, authors = "values", "rights of authors"
	for name, c := range map[string]struct {
		change func(*check.Facts)
		want   map[string]check.Outcome
	}{
		"weak value":   {func(f *check.Facts) { f.Weakening["a.b"] = "a.b=1: bad" }, map[string]check.Outcome{values: check.Warning}},
		"no ConfigMap": {func(f *check.Facts) { f.Weakening = nil }, map[string]check.Outcome{values: check.Warning}},
		"no policy":    {func(f *check.Facts) { f.Policy = nil }, map[string]check.Outcome{authors: check.Failed}},
		"no binding":   {func(f *check.Facts) { f.Binding = nil }, map[string]check.Outcome{authors: check.Failed}},
		"binding of another policy": {
			func(f *check.Facts) { f.Binding.Spec.PolicyName = "other" }, map[string]check.Outcome{authors: check.Failed},
		},
		"binding that only warns": {
			func(f *check.Facts) { f.Binding.Spec.ValidationActions[0] = admissionregistrationv1.Warn }, map[string]check.Outcome{authors: check.Failed},
		},
		"disabled": {
			func(f *check.Facts) {
				f.Weakening["broker-controller.authors.enabled"] = "bad"
				f.Policy, f.Binding = nil, nil
			},
			map[string]check.Outcome{authors: check.Warning, values: check.Warning},
		},
		"unreadable": {
			func(f *check.Facts) {
				*f = check.Facts{Version: f.Version, Unreadable: []string{"configmaps", "validatingadmissionpolicies"}}
			},
			map[string]check.Outcome{authors: check.Warning, values: check.Warning},
		},
	} {
		t.Run(name, func(t *testing.T) {
			facts := secure()
			c.change(&facts)
			results := check.Of(s, facts)
			require.Equal(t, c.want, outcomes(results))
			for _, line := range facts.Weakening {
				require.Contains(t, results, check.Result{Name: values, Outcome: check.Warning, Message: line})
			}
		})
	}
}
