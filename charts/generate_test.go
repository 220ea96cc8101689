package charts_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"akri.sh/charts"
)

const root = ".."

func TestGeneratedFilesAreCurrent(t *testing.T) {
	files, err := sources(t).Files()
	require.NoError(t, err)
	for path, content := range files {
		require.Equal(t, string(content), read(t, path), "%s is out of date: run make charts", path)
	}
}

// TestHandlersAreComplete checks what `make generate` needs and does not create for the handlers in
// services/, and that no sub-chart or image is left of a handler that does not exist.
func TestHandlersAreComplete(t *testing.T) {
	services := directories(t, "services/handler-*")
	workspace := read(t, "go.work")
	for _, service := range services {
		t.Run(service, func(t *testing.T) {
			require.True(t, strings.Contains(workspace, "\t./services/"+service+"\n"), "not in go.work: run make generate")
			require.FileExists(t, filepath.Join(root, "services", service, "README.md"))
			require.FileExists(t, filepath.Join(root, "services", service, "cmd", service, "main.go"))
			var image struct{ Name, Description, Package string }
			require.NoError(t, yaml.Unmarshal([]byte(read(t, "deploy/images/"+service+".yaml")), &image))
			require.Equal(t, service, image.Name)
			require.Equal(t, "services/"+service+"/cmd/"+service, image.Package)
			require.Contains(t, image.Description, "Akri "+service+": Discovery Handler for ")
		})
	}
	require.ElementsMatch(t, services, directories(t, "charts/akri/charts/handler-*"))
	var images []string
	for _, definition := range directories(t, "deploy/images/handler-*") {
		if name := strings.TrimSuffix(definition, ".yaml"); name != "handler-http" { // a sample
			images = append(images, name)
		}
	}
	require.ElementsMatch(t, services, images)
}

// TestHandlersOfTheAgent compares the declarations with the flag --handlers of the agent.
func TestHandlersOfTheAgent(t *testing.T) {
	_, flag, _ := strings.Cut(read(t, "services/agent/service.go"), "Handlers ")
	_, enum, _ := strings.Cut(flag, `enum:"`)
	enum, _, _ = strings.Cut(enum, `"`)
	var names []string
	for _, handler := range sources(t).Handlers {
		if handler.Agent {
			names = append(names, strings.TrimPrefix(handler.Service, "handler-"))
		}
	}
	require.ElementsMatch(t, strings.Split(enum, ","), names)
}

func TestSubChartsAreDependencies(t *testing.T) {
	require.ElementsMatch(t, directories(t, "charts/akri/charts/*"), dependencies(t))
}

// TestServicesHaveCommonValues checks the values that charts/README.md lists for every service.
func TestServicesHaveCommonValues(t *testing.T) {
	common := []string{
		"image", "logLevel", "env", "extraEnv", "extraArgs", "resources", "nodeSelector", "tolerations", "affinity", "priorityClassName",
		"podAnnotations", "podLabels", "serviceAccountAnnotations", "podSecurityContext", "securityContext",
	}
	daemonSet := []string{"updateStrategy", "revisionHistoryLimit"}
	deployment := []string{"replicas", "strategy", "topologySpreadConstraints", "revisionHistoryLimit"}
	kinds := map[string][]string{
		"akri-library": nil, "cleanup": common,
		"broker-controller": append(deployment, common...), "console": append(deployment, common...),
		"dra-controller": append(deployment, common...), "instance-writer": append(deployment, common...),
	}
	for _, name := range directories(t, "charts/akri/charts/*") {
		expected, found := kinds[name]
		if !found {
			expected = append(daemonSet, common...)
		}
		values := map[string]any{}
		if expected != nil {
			require.NoError(t, yaml.Unmarshal([]byte(read(t, "charts/akri/charts/"+name+"/values.yaml")), &values))
		}
		for _, value := range expected {
			require.Contains(t, values, value, name)
		}
	}
}

func TestOneVersionOfAllCharts(t *testing.T) {
	files, err := filepath.Glob("akri/charts/*/Chart.yaml")
	require.NoError(t, err)
	for _, file := range append(files, "akri/Chart.yaml", "akri-crds/Chart.yaml") {
		var chart struct {
			Version, AppVersion string
			Dependencies        []struct{ Version string }
		}
		require.NoError(t, yaml.Unmarshal([]byte(read(t, "charts/"+file)), &chart))
		require.Equal(t, "0.1.0", chart.Version, file)
		require.Equal(t, "v0.1.0", chart.AppVersion, file)
		for _, dependency := range chart.Dependencies {
			require.Equal(t, "0.1.0", dependency.Version, file)
		}
	}
}

// TestEachHandlerCanBeEnabled renders every handler in a Pod of its own.
func TestEachHandlerCanBeEnabled(t *testing.T) {
	t.Parallel()
	for _, service := range directories(t, "services/handler-*") {
		rendered, err := render(t, set(service+".enabled=true")...)
		require.NoError(t, err)
		daemonSetOf(t, rendered, service)
		rendered, err = render(t, set(service+".enabled=false")...)
		require.NoError(t, err)
		require.NotContains(t, rendered, "app.kubernetes.io/component: "+service+"\n")
	}
}

// TestHostPorts checks that sub-charts that can run on the host network use different ports there.
func TestHostPorts(t *testing.T) {
	used := map[int]string{}
	for _, service := range dependencies(t) {
		if service == "akri-library" {
			continue
		}
		values := values(t, service)
		if values.HostNetwork == nil {
			require.Zero(t, values.MetricsPort, "%s does not run on the host network", service)
			continue
		}
		require.NotZero(t, values.MetricsPort, "%s needs a metricsPort for the host network", service)
		for _, port := range []int{values.MetricsPort, values.Relay.Port} {
			require.Empty(t, used[port], "%s: port %d is in use", service, port)
			if port != 0 {
				used[port] = service
			}
		}
	}
}

// hostValues are the values of a sub-chart about the host network.
type hostValues struct {
	HostNetwork *bool
	MetricsPort int
	Relay       struct{ Port int }
}

func values(t *testing.T, service string) hostValues {
	t.Helper()
	var values hostValues
	require.NoError(t, yaml.Unmarshal([]byte(read(t, "charts/akri/charts/"+service+"/values.yaml")), &values))
	return values
}

func sources(t *testing.T) charts.Sources {
	t.Helper()
	sources, err := load()
	require.NoError(t, err)
	return sources
}

var load = sync.OnceValues(func() (charts.Sources, error) { return charts.Load(root) })

// dependencies returns the names of the sub-charts in Chart.yaml.
func dependencies(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, dependency := range sources(t).Dependencies {
		if dependency.Alias == "" {
			names = append(names, dependency.Name)
		}
	}
	return names
}

// directories returns the names of the directories that match a pattern.
func directories(t *testing.T, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, pattern))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	var names []string
	for _, path := range paths {
		names = append(names, filepath.Base(path))
	}
	return names
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(content)
}
