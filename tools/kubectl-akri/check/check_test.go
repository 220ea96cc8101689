package check_test

import (
	"cmp"
	"errors"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	akriv0 "akri.sh/libs/apis/akri/v0"
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
		"service-not-ready": {"placement": check.Warning, "services": check.Failed, "Node node-b": check.Failed},
		"service-images":    {"placement": check.Warning, "services": check.Failed, "Node node-b": check.Failed},
		"webhook-away":      {"placement": check.Warning, "services": check.Failed},
		"misspelt-handler":  {"placement": check.Warning, "Devices of default/camera": check.Failed, "DiscoveryHandler udve": check.Failed},
		"not-advertised":    {"placement": check.Warning, "Devices of default/camera": check.Failed},
		"handler-offline-on-one-node": {
			"placement": check.Warning, "Devices of default/camera": check.Failed, "DiscoveryHandler onvif": check.Failed,
		},
		"socket-missing-on-one-node": {
			"placement": check.Warning, "Devices of default/camera": check.Failed, "DiscoveryHandler lamp": check.Failed,
		},
	} {
		t.Run(file, func(t *testing.T) {
			files := []string{fixtures + "healthy.yaml"}
			if file != "healthy" {
				files = append(files, fixtures+file+".yaml")
			}
			results := check.Of(fixture.Load(t, files...), secure())
			require.Equal(t, want, outcomes(results))
			for _, result := range results {
				require.NotEmpty(t, result.Message, result.Name)
			}
			require.Equal(t, file != "healthy" && file != "tainted-node", check.HasFailed(results))
		})
	}
	require.Empty(t, outcomes(check.Of(apart(fixture.Load(t, fixtures+"healthy.yaml")), secure())))
}

// A handler that does not work on one node only fails a check, which names the node and what to do.
func TestHandlerOnOneNode(t *testing.T) {
	for file, want := range map[string]struct{ handler, message, command string }{
		"handler-offline-on-one-node": {"onvif", "PARTLY: HandlerOffline: node-a: ", "kubectl get pods --namespace akri-system --output wide"},
		"socket-missing-on-one-node":  {"lamp", "PARTLY: HandlerSocketMissing: node-a: ", "--field-selector spec.nodeName=node-a"},
	} {
		t.Run(file, func(t *testing.T) {
			results := check.Of(fixture.Load(t, fixtures+"healthy.yaml", fixtures+file+".yaml"), secure())
			i := slices.IndexFunc(results, func(r check.Result) bool { return r.Name == "DiscoveryHandler "+want.handler })
			require.NotEqual(t, -1, i)
			require.Equal(t, check.Failed, results[i].Outcome)
			require.Contains(t, results[i].Message, want.message)
			require.NotContains(t, results[i].Message, "node-b")
			require.Contains(t, results[i].Remedies[0].Command, want.command)
		})
	}
}

// TestWebhook checks that only the answer of the webhook itself passes.
func TestWebhook(t *testing.T) {
	denied := `admission webhook "akri-webhook-configuration.akri.svc" denied the request: spec.brokerSpec.brokerPodSpec.containers: Required value`
	configurations := akriv0.GroupVersion.WithResource("configurations").GroupResource()
	for _, c := range []struct {
		name    string
		refusal error
		want    check.Outcome
	}{
		{"denied", errors.New(denied), check.Passed},
		{"accepted", nil, check.Failed},
		{"not reached", apierrors.NewInternalError(errors.New(`failed calling webhook "akri-webhook-configuration.akri.svc": service "x" not found`)), check.Failed},
		{"no right", apierrors.NewForbidden(configurations, "", errors.New("no RBAC policy matched")), check.Warning},
		{"another webhook", errors.New(`admission webhook "policy.example.com" denied the request: no`), check.Warning},
	} {
		t.Run(c.name, func(t *testing.T) {
			facts := secure()
			facts.Review = &check.Review{Refusal: c.refusal}
			found := outcomes(check.Of(apart(fixture.Load(t, fixtures+"healthy.yaml")), facts))
			require.Equal(t, c.want, cmp.Or(found["webhook"], check.Passed))
		})
	}

	s := apart(fixture.Load(t, fixtures+"healthy.yaml"))
	s.Webhooks[0].Webhooks[0].ClientConfig.CABundle = nil
	require.Equal(t, map[string]check.Outcome{"webhook": check.Failed}, outcomes(check.Of(s, secure())))
	s.Webhooks[0].Webhooks = nil
	require.Equal(t, map[string]check.Outcome{"webhook": check.Warning}, outcomes(check.Of(s, secure())))
}

// TestCertificates checks that nodes trust the CA with which instance-writer signs.
func TestCertificates(t *testing.T) {
	for _, c := range []struct {
		name           string
		signs, trusted []byte
		unreadable     bool
		want           check.Outcome
	}{
		{name: "the same", signs: []byte("a"), trusted: []byte("a"), want: check.Passed},
		{name: "others", signs: []byte("a"), trusted: []byte("b"), want: check.Failed},
		{name: "one is missing", signs: []byte("a")},
		{name: "no right", unreadable: true, want: check.Warning},
	} {
		t.Run(c.name, func(t *testing.T) {
			facts := secure()
			facts.CA = check.CA{Signs: c.signs, Trusted: c.trusted, Unreadable: c.unreadable}
			var outcome check.Outcome
			for _, result := range check.Of(fixture.Load(t, fixtures+"healthy.yaml"), facts) {
				if result.Name == "CA of instance-writer" {
					outcome = result.Outcome
				}
			}
			require.Equal(t, c.want, outcome)
		})
	}
}

// TestRelease checks that an operation in progress is no failure, and an interrupted one is.
func TestRelease(t *testing.T) {
	ca := akriv0.Subject{Kind: "Secret", Namespace: "akri-system", Name: "akri-ca"}
	for _, c := range []struct {
		release check.Release
		want    check.Outcome
		message string
		command string
	}{
		{check.Release{Status: "deployed"}, check.Passed, "all its objects exist", ""},
		{check.Release{Status: "deployed", Missing: []akriv0.Subject{ca}}, check.Failed, "Secret akri-system/akri-ca", "helm upgrade akri "},
		{check.Release{Status: "failed"}, check.Warning, "has failed", "helm status akri "},
		{check.Release{Status: "pending-upgrade", Revision: 2, Changed: time.Now()}, check.Warning, "is pending-upgrade", ""},
		{check.Release{Status: "pending-upgrade", Revision: 2}, check.Failed, "Helm was interrupted", "helm rollback akri "},
		{check.Release{Status: "pending-install", Revision: 1}, check.Failed, "Helm was interrupted", "helm uninstall akri "},
	} {
		c.release.Name, c.release.Namespace = "akri", "akri-system"
		facts := secure()
		facts.Release = &c.release
		results := check.Of(fixture.Load(t, fixtures+"healthy.yaml"), facts)
		i := slices.IndexFunc(results, func(r check.Result) bool { return r.Name == "Helm release" })
		require.GreaterOrEqual(t, i, 0)
		require.Equal(t, c.want, results[i].Outcome)
		require.Contains(t, results[i].Message, c.message)
		if c.command == "" {
			require.Empty(t, results[i].Remedies)
		} else {
			require.Contains(t, results[i].Remedies[0].Command, c.command)
		}
		requireInterrupts(t, results[i])
	}
}

// restarts matches commands after which Pods have another spec.
var restarts = regexp.MustCompile(`^helm (rollback|uninstall) | --set |^kubectl rollout restart `)

// requireInterrupts requires that a remedy states what it interrupts if it restarts something.
func requireInterrupts(t *testing.T, result check.Result) {
	t.Helper()
	for _, remedy := range result.Remedies {
		require.Equal(t, restarts.MatchString(remedy.Command), len(remedy.Interrupts) > 0, remedy.Command)
	}
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
		Review:   &check.Review{Refusal: errors.New("denied the request: spec.brokerSpec.brokerPodSpec.containers")},
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
