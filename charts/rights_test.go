package charts_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
)

// TestRights checks that the rights of every service are those in the table of docs/security.md,
// verb by verb.
func TestRights(t *testing.T) {
	all := []string{"console.enabled=true", "global.metrics.authorization=true", "prometheus.enabled=true", "dra-controller.retryPreparations=true"}
	dra := append(all, "global.resources=dra")
	require.Equal(t, documentedRights(t), grantedRights(t, all...))
	require.Equal(t, documentedRights(t), grantedRights(t, append(all, "global.agent.enabled=true")...))
	ofDRA := slices.DeleteFunc(documentedRights(t), isOfDecision)
	require.Equal(t, ofDRA, grantedRights(t, dra...))
	require.Equal(t, ofDRA, grantedRights(t, append(dra, "global.agent.enabled=true")...))
	other := slices.Concat(authorizationRights, draRights, []string{"akri-console ", "akri-cleanup-brokers "})
	plugins := slices.DeleteFunc(documentedRights(t, other...), isOfDecision)
	require.Equal(t, plugins, grantedRights(t, "global.resources=devicePlugin"))
	require.Equal(t, plugins, grantedRights(t, "global.resources=devicePlugin", "global.agent.enabled=true"))
}

// isOfDecision reports whether the right exists only with global.resources=auto.
func isOfDecision(right string) bool {
	return strings.Contains(right, "configmaps akri-resources") || strings.Contains(right, "endpointslices kubernetes") ||
		strings.Contains(right, "clusterroles akri-dra-controller")
}

// authorizationRights exist with global.metrics.authorization.
var authorizationRights = []string{
	"akri-instance-writer | cluster | subjectaccessreviews", "akri-controller | cluster | subjectaccessreviews",
	"akri-controller | cluster | tokenreviews",
}

// draRights exist with global.resources=dra and auto.
var draRights = []string{
	"akri-dra-", "akri-controller | cluster | deviceclasses", "akri-instance-writer | cluster | resourceclaims",
	"akri-controller | cluster | validatingadmissionpolicies akri-allowed-namespaces-of-claims",
}

// documentedRights returns the rows of the table of rights: account, scope, resource and verbs. It
// leaves out those with the prefixes.
func documentedRights(t *testing.T, without ...string) []string {
	t.Helper()
	row := regexp.MustCompile("(?m)^\\| `(akri-[a-z-]+)` \\| (cluster|namespace) \\| `([^`]+)` \\| ([a-z, ]+) \\|")
	var rights []string
	for _, match := range row.FindAllStringSubmatch(read(t, "docs/security.md"), -1) {
		right := strings.Join(match[1:], " | ")
		if !slices.ContainsFunc(without, func(prefix string) bool { return strings.HasPrefix(right, prefix) }) {
			rights = append(rights, right)
		}
	}
	slices.Sort(rights)
	require.NotEmpty(t, rights)
	return rights
}

// grantedRights returns the rules of all Roles in the form of documentedRights.
func grantedRights(t *testing.T, values ...string) []string {
	t.Helper()
	rendered, err := render(t, set(values...)...)
	require.NoError(t, err)
	var rights []string
	roles, accounts := map[string]bool{}, map[string]bool{}
	for _, role := range decode[rbacv1.ClusterRole](t, rendered, "ClusterRole", "Role") {
		scope := map[string]string{"ClusterRole": "cluster", "Role": "namespace"}[role.Kind]
		if role.Name == metricsReader {
			require.Equal(t, []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}, role.Rules)
			continue // for Prometheus
		}
		roles[role.Name] = true
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				for _, name := range append(rule.ResourceNames, "")[:max(1, len(rule.ResourceNames))] {
					rights = append(rights, fmt.Sprintf("%s | %s | %s | %s", role.Name, scope, strings.Trim(resource+" "+name, " "), strings.Join(rule.Verbs, ", ")))
				}
			}
		}
	}
	for _, workload := range workloads(t, rendered) {
		if pod := workload.Spec.Template.Spec; *pod.AutomountServiceAccountToken {
			accounts[pod.ServiceAccountName] = true
		}
	}
	require.Equal(t, roles, accounts, "only ServiceAccounts with rights mount a token")
	slices.Sort(rights)
	return slices.Compact(rights) // a Role can exist in the namespace of the control plane and in that of the nodes
}
