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
			s := &explain.Snapshot{}
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
		// The cluster services are on nodes with node services.
		"healthy":           {"placement": check.Warning},
		"tainted-node":      {"placement": check.Warning, "nodes": check.Warning},
		"version-skew":      {"placement": check.Warning, "services": check.Failed},
		"service-not-ready": {"placement": check.Warning, "services": check.Failed},
		"service-images":    {"placement": check.Warning, "services": check.Failed},
		"webhook-away":      {"placement": check.Warning, "services": check.Failed},
		"misspelt-handler":  {"placement": check.Warning, "Devices of default/camera": check.Failed},
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
	s := apart(fixture.Load(t, fixtures+"healthy.yaml"))
	require.Empty(t, outcomes(check.Of(s, secure())))
	s.Webhooks[0].Webhooks[0].ClientConfig.CABundle = nil
	require.Equal(t, map[string]check.Outcome{"webhook": check.Failed}, outcomes(check.Of(s, secure())))
	s.Webhooks[0].Webhooks = nil
	require.Equal(t, map[string]check.Outcome{"webhook": check.Warning}, outcomes(check.Of(s, secure())))
}

// apart moves the cluster services to nodes without node services.
func apart(s *explain.Snapshot) *explain.Snapshot {
	for i := range s.Pods {
		if component := s.Pods[i].Labels[explain.ComponentLabel]; component == "instance-writer" || component == "broker-controller" {
			s.Pods[i].Spec.NodeName = "node-c"
		}
	}
	return s
}

// secure returns the facts of a release with default values.
func secure() check.Facts {
	facts := check.Facts{
		Version: "v1.36.3", Namespace: "akri-system", Weakening: map[string]string{}, NodeRestriction: check.NodeRestriction{Enforced: true},
		Policies: map[string]*admissionregistrationv1.ValidatingAdmissionPolicy{},
		Bindings: map[string]*admissionregistrationv1.ValidatingAdmissionPolicyBinding{},
	}
	for _, name := range check.PolicyNames() {
		facts.Policies[name] = &admissionregistrationv1.ValidatingAdmissionPolicy{}
		facts.Bindings[name] = &admissionregistrationv1.ValidatingAdmissionPolicyBinding{Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		}}
	}
	return facts
}
