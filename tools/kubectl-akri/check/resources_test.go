package check_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/fixture"
	"akri.sh/tools/kubectl-akri/check"
)

// The check states how Pods get devices if the cluster decides it.
func TestResources(t *testing.T) {
	record := func(resources, reason string) map[string]string {
		return map[string]string{
			akriv0.ResourcesKey: resources, akriv0.ResourcesReasonKey: reason, akriv0.ResourcesMessageKey: "details",
			akriv0.ResourcesDecidedAtKey: "2026-06-01T12:00:00Z",
		}
	}
	const possible = "; Dynamic Resource Allocation is possible now"
	for name, c := range map[string]struct {
		facts    check.Facts
		outcome  check.Outcome
		message  string
		remedies []string
	}{
		"the chart decides": {},
		"undecided": {check.Facts{Resources: map[string]string{}}, check.Warning, "not decided yet: no device has an Instance before", []string{
			"kubectl logs --all-namespaces --tail=50 --prefix --selector app.kubernetes.io/component=dra-controller",
		}},
		"dra": {
			check.Facts{Resources: record(akriv0.ResourcesDRA, akriv0.ResourcesFeaturesComplete), HasDRA: true}, check.Passed,
			"dra, decided at 2026-06-01T12:00:00Z (FeaturesComplete: details)", nil,
		},
		"device plugins": {
			check.Facts{Resources: record(akriv0.ResourcesDevicePlugin, akriv0.ResourcesFeaturesMissing)}, check.Passed,
			"devicePlugin, decided at 2026-06-01T12:00:00Z (FeaturesMissing: details)", nil,
		},
		"after an upgrade of Kubernetes": {
			check.Facts{Namespace: "edge", Resources: record(akriv0.ResourcesDevicePlugin, akriv0.ResourcesFeaturesMissing), HasDRA: true}, check.Passed,
			"devicePlugin, decided at 2026-06-01T12:00:00Z (FeaturesMissing: details)" + possible, []string{
				"kubectl label node NODE akri.sh/resources=dra",
				`kubectl patch configmap akri-resources --namespace edge --patch '{"data":{"resources":"dra"}}'`,
			},
		},
		"a user has decided": {
			check.Facts{Resources: map[string]string{akriv0.ResourcesKey: akriv0.ResourcesDevicePlugin}, HasDRA: true}, check.Passed, "devicePlugin", nil,
		},
		"misspelt": {
			check.Facts{Namespace: "edge", Resources: record("DRA", "")}, check.Failed,
			`the ConfigMap akri-resources has "DRA", which is neither dra nor devicePlugin`, []string{
				`kubectl patch configmap akri-resources --namespace edge --patch '{"data":{"resources":"devicePlugin"}}'`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.facts.Version = "v1.37.2"
			results := check.Of(fixture.Load(t, "../../../libs/inspect/explain/testdata/healthy.yaml"), c.facts)
			i := slices.IndexFunc(results, func(result check.Result) bool { return result.Name == "how Pods get devices" })
			if c.message == "" {
				require.Equal(t, -1, i)
				return
			}
			require.GreaterOrEqual(t, i, 0)
			require.Equal(t, c.outcome, results[i].Outcome)
			require.Equal(t, c.message, results[i].Message)
			var commands []string
			for _, remedy := range results[i].Remedies {
				commands = append(commands, remedy.Command)
			}
			require.Equal(t, c.remedies, commands)
		})
	}
}
