package charts_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"akri.sh/libs/kube/kubetest"
)

// appliedBy are the ways in which a cluster can have got its CRDs, with the field managers of each
// tool. CHART is an earlier chart akri-crds, and OTHER a chart that has its CRDs in crds/, as
// those of this project and of upstream Akri. Helm 3 updates fields as --server-side=false does.
var appliedBy = map[string]string{
	"kubectl create":                    `kubectl create -f CHART/templates`,
	"kubectl apply":                     `kubectl apply -f CHART/templates`,
	"kubectl apply --server-side":       `kubectl apply --server-side -f CHART/templates`,
	"crds/ with Helm 4":                 `helm install akri OTHER --namespace akri-system`,
	"crds/ with Helm 3":                 `helm install akri OTHER --namespace akri-system --server-side=false`,
	"akri-crds with Helm 4":             `helm install akri-crds CHART --namespace akri-system`,
	"akri-crds with Helm 3":             `helm install akri-crds CHART --namespace akri-system --server-side=false`,
	"akri-crds in another namespace":    `helm install akri-crds CHART --namespace default`,
	"Argo CD":                           `kubectl apply --field-manager=argocd-controller -f CHART/templates`,
	"Argo CD with ServerSideApply=true": `kubectl apply --server-side --force-conflicts --field-manager=argocd-controller -f CHART/templates`,
	"Flux":                              `kubectl apply --server-side --force-conflicts --field-manager=kustomize-controller -f CHART/templates`,
}

// TestUpgradeCRDs runs the documented commands on CRDs that another tool has applied. Afterwards
// the CRDs are those of this version, another upgrade works, and a GitOps tool can apply its own
// again.
func TestUpgradeCRDs(t *testing.T) {
	t.Parallel()
	own, err := kubetest.StartWithoutCRDs(t.Context())
	require.NoError(t, err)
	t.Cleanup(own.Stop)
	dir := earlierCharts(t)
	bash := func(commands string) string { return bashOn(t, own, dir, commands) }
	bash("kubectl create namespace akri-system")

	byHelm, byKubectl := documentedUpgrades(t)
	for name, apply := range appliedBy {
		for _, upgrade := range []string{byHelm, byKubectl} {
			bash(apply)
			require.Contains(t, descriptions(t, bash), earlier, name)
			bash(upgrade)
			require.NotContains(t, descriptions(t, bash), earlier, "%s, then %s", name, upgrade)
			bash(upgrade)
			if upgrade == byHelm {
				require.Contains(t, bash("helm list --namespace akri-system"), "akri-crds", name)
			}
			if gitOps(apply) {
				bash(apply)
				require.Contains(t, descriptions(t, bash), earlier, name)
				bash(upgrade)
			}
			uninstallReleases(bash)
			require.NotContains(t, descriptions(t, bash), earlier, "%s: the CRDs stay without their release", name)
			deleteCRDs(bash)
		}
	}
}

// TestUpgradeCRDsIsOneCommand checks that all documents have the command that TestUpgradeCRDs runs.
func TestUpgradeCRDsIsOneCommand(t *testing.T) {
	byHelm, _ := documentedUpgrades(t)
	command := regexp.MustCompile(`helm upgrade --install akri-crds (?:[^\n]*\\\n)*[^\n]*`)
	for _, page := range []string{
		"docs/how-to/upgrade.md", "docs/how-to/move-from-akri.md", "charts/akri-crds/README.md",
	} {
		found := command.FindAllString(read(t, page), -1)
		require.Len(t, found, 1, page)
		require.Equal(t, words(byHelm), words(strings.ReplaceAll(found[0], "oci://ghcr.io/akri-mesh/charts/", "charts/")), page)
	}
	remedy := strings.ReplaceAll(words(byHelm), " --create-namespace", "") // the release akri exists
	require.Contains(t, words(read(t, "libs/inspect/explain/testdata/crd-outdated.configuration.golden")), remedy)
}

func words(command string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(command, "\\\n", " ")), " ")
}

// documentedUpgrades returns the commands of the charts' README.
func documentedUpgrades(t *testing.T) (byHelm, byKubectl string) {
	t.Helper()
	_, section, found := strings.Cut(read(t, "charts/README.md"), "\n## CRDs\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	commands := codeBlocks(section, "sh")
	require.Len(t, commands, 2)
	require.Contains(t, commands[0], "helm ")
	require.Contains(t, commands[1], "kubectl ")
	return commands[0], commands[1]
}

// earlier is in the description of a Configuration in CRDs of earlier charts.
const earlier = "Earlier description."

// earlierCharts returns a directory with the charts of the documented commands, and with the charts
// CHART and OTHER of an earlier version.
func earlierCharts(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Symlink(absolute(t, "."), filepath.Join(dir, "charts")))
	require.NoError(t, os.CopyFS(filepath.Join(dir, "CHART"), os.DirFS("akri-crds")))
	templates := filepath.Join(dir, "CHART", "templates")
	for _, name := range []string{"configurations.yaml", "instances.yaml"} {
		file := filepath.Join(templates, name)
		crd := decode[apiextensions.CustomResourceDefinition](t, read(t, "charts/akri-crds/templates/"+name), "CustomResourceDefinition")[0]
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Description = earlier
		text, err := yaml.Marshal(crd)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, text, 0o600))
	}
	other := filepath.Join(dir, "OTHER")
	require.NoError(t, os.CopyFS(filepath.Join(other, "crds"), os.DirFS(templates)))
	require.NoError(t, os.WriteFile(filepath.Join(other, "Chart.yaml"), []byte("{apiVersion: v2, name: akri, version: 0.0.1}"), 0o600))
	return dir
}

// gitOps reports whether the command is that of a tool that reverts the changes of others.
func gitOps(command string) bool { return strings.Contains(command, "-controller") }

// descriptions returns the descriptions of the API's types.
func descriptions(t *testing.T, bash func(string) string) string {
	t.Helper()
	return bash(`kubectl get crd configurations.akri.sh instances.akri.sh \
		-o jsonpath='{.items[*].spec.versions[0].schema.openAPIV3Schema.description}'`)
}

func uninstallReleases(bash func(string) string) {
	bash(`helm list --all-namespaces --no-headers | while read -r name namespace _; do
			[ -z "$name" ] || helm uninstall "$name" --namespace "$namespace"
		done`)
}

// deleteCRDs also removes the finalizers: the API server repeats a cleanup that fails only after
// minutes, and it fails for CRDs that are new.
func deleteCRDs(bash func(string) string) {
	bash(`kubectl delete crd --all --wait=false
		for crd in $(kubectl get crd -o name); do
			kubectl patch $crd --type=merge -p '{"metadata":{"finalizers":null}}' || ! kubectl get $crd
		done`)
}
