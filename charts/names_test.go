package charts_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// TestValuesInMessagesExist checks that each chart value that a message of a service or a page
// names is a value of the chart akri. A name without its first keys is an error too.
func TestValuesInMessagesExist(t *testing.T) {
	known := valueNames(t)
	names := 0
	for path, texts := range messages(t) {
		for _, text := range texts {
			for _, name := range chartValues(text, known) {
				if base, _, found := strings.Cut(name, ".resources."); found {
					name = base + ".resources.limits.memory" // the others have no default
				}
				if _, upstream := sources(t).UpstreamOf(name); upstream && strings.HasSuffix(path, "move-from-akri.md") {
					continue // the page lists the values of upstream Akri's chart
				}
				names++
				require.True(t, slices.Contains(known, name), "%s: %q is not a value of the chart akri, in %q", path, name, text)
			}
		}
	}
	require.Positive(t, names, "no message names a value")
}

func TestChartValuesInText(t *testing.T) {
	known := []string{"instance-writer.rbac.secrets", "opcua.discovery.enabled", "udev.discovery.enabled"}
	for text, expected := range map[string][]string{
		"set rbac.secrets, or instance-writer.rbac.secrets=none": {"rbac.secrets", "instance-writer.rbac.secrets"},
		"handler opcua is off: `opcua.discovery.enabled=true`":   {"opcua.discovery.enabled"},
		"set opcua.enabled.": {"opcua.enabled"},
		"/var/lib/akri/udev.sock, udev.go and http://opcua.example/": nil,
	} {
		require.Equal(t, expected, chartValues(text, known), text)
	}
}

// placeholder is a value of a sub-chart that the text does not name, such as <service>.image.
var placeholder = regexp.MustCompile(`((<|&lt;)\w+>|%s)\.[a-zA-Z.-]+`)

var dotted = regexp.MustCompile(`[a-zA-Z][a-zA-Z-]*(\.[a-zA-Z][a-zA-Z-]*)+`)

// noValues are the ends of names of files and hosts, and of fields of a Pod.
var noValues = []string{"sock", "go", "md", "yaml", "json", "proto", "example", "limits", "requests"}

// chartValues returns the names of chart values in a text: those that begin like a known value, and
// those that are its end.
func chartValues(text string, known []string) []string {
	var names []string
	for _, name := range dotted.FindAllString(placeholder.ReplaceAllString(text, ""), -1) {
		first, rest, _ := strings.Cut(name, ".")
		if slices.Contains(noValues, rest) {
			continue
		}
		for _, value := range known {
			if strings.HasPrefix(value, first+".") || strings.HasSuffix(value, "."+name) {
				names = append(names, name)
				break
			}
		}
	}
	return names
}

// messages returns the string literals of the services, their READMEs and the pages in docs, by
// path.
func messages(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	for _, directory := range []string{"services", "libs"} {
		err := filepath.WalkDir(filepath.Join(root, directory), func(path string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil || entry.IsDir():
			case strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go"):
				found[path] = literals(t, path)
			case entry.Name() == "README.md":
				relative, err := filepath.Rel(root, path)
				require.NoError(t, err)
				found[path] = strings.Split(read(t, relative), "\n")
			}
			return err
		})
		require.NoError(t, err)
	}
	for path, content := range files(t, "docs", ".md") {
		if strings.HasPrefix(path, "docs/upstream/") || path == "docs/reference/values.md" {
			continue // code of other projects, names relative to a value
		}
		found[path] = strings.Split(content, "\n")
	}
	found["README.md"] = strings.Split(read(t, "README.md"), "\n")
	return found
}

func literals(t *testing.T, path string) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	require.NoError(t, err)
	var texts []string
	for node := range ast.Preorder(file) {
		if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			texts = append(texts, literal.Value)
		}
	}
	return texts
}

// valueNames returns the names of all values of the chart akri, also of those that contain others.
func valueNames(t *testing.T) []string {
	t.Helper()
	names := map[string]bool{}
	add := func(prefix, path string) {
		values := map[string]any{}
		require.NoError(t, yaml.Unmarshal([]byte(read(t, path)), &values))
		addNames(prefix, values, names)
	}
	add("", "charts/akri/values.yaml")
	for _, service := range dependencies(t) {
		if service == "akri-library" {
			continue
		}
		names[service+".enabled"] = service != "agent"
		add(service+".", "charts/akri/charts/"+service+"/values.yaml")
	}
	maps.DeleteFunc(names, func(_ string, exists bool) bool { return !exists })
	return slices.Sorted(maps.Keys(names))
}

func addNames(prefix string, values map[string]any, names map[string]bool) {
	for key, value := range values {
		names[prefix+key] = true
		if section, ok := value.(map[string]any); ok {
			addNames(prefix+key+".", section, names)
		}
	}
}
