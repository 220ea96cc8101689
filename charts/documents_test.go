package charts_test

import (
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestConditionsAndEvents compares docs/reference/conditions.md with the constants of the API and
// the Events of broker-controller.
func TestConditionsAndEvents(t *testing.T) {
	constants := read(t, "libs/apis/akri/v0/conditions.go")
	conditions, events, found := strings.Cut(read(t, "docs/reference/conditions.md"), "\n## Events\n")
	require.True(t, found)
	events, _, found = strings.Cut(events, "\n## ")
	require.True(t, found)
	require.ElementsMatch(t, matches(`Condition\w+ = "(\w+)"`, constants), firstCells(conditions))

	// A reason that only Events have is a literal.
	expected := matches(`ReasonDevice\w+ = "(\w+)"`, constants)
	expected = append(expected, matches(`ReasonBrokerRefused = "(\w+)"`, constants)...)
	for _, content := range files(t, "services/broker-controller/internal/controller", ".go") {
		expected = append(expected, matches(`corev1\.EventType\w+, "(\w+)"`, content)...)
	}
	slices.Sort(expected)
	require.ElementsMatch(t, slices.Compact(expected), firstCells(events))
}

// TestAPIsAreDocumented compares docs/reference/apis.md with the protobuf files.
func TestAPIsAreDocumented(t *testing.T) {
	var services []string
	for _, content := range files(t, "proto", ".proto") {
		name := matches(`(?m)^package (\S+);`, content)[0]
		for _, service := range matches(`(?m)^service (\w+)`, content) {
			services = append(services, name+"."+service)
		}
	}
	require.ElementsMatch(t, services, firstCells(read(t, "docs/reference/apis.md")))
}

// TestMetricsInDocumentsExist checks the names of metrics in all pages.
func TestMetricsInDocumentsExist(t *testing.T) {
	known := append(documentedMetrics(t), "akri_frame_count") // of upstream Akri's broker
	for path, content := range documents(t) {
		for _, name := range matches("`(akri_[a-z_]+)[`{]", content) {
			require.Contains(t, known, name, path)
		}
	}
}

// documents returns the pages in docs and the READMEs of services, by path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	found := files(t, "docs", ".md")
	maps.Copy(found, files(t, "services", "README.md"))
	return found
}

// files returns the contents of the files in a directory with the suffix, except tests.
func files(t *testing.T, directory, suffix string) map[string]string {
	t.Helper()
	found := map[string]string{}
	err := filepath.WalkDir(filepath.Join(root, directory), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, suffix) || strings.HasSuffix(path, "_test.go") {
			return err
		}
		relative, err := filepath.Rel(root, path)
		require.NoError(t, err)
		found[relative] = read(t, relative)
		return nil
	})
	require.NoError(t, err)
	require.NotEmpty(t, found)
	return found
}

// firstCells returns the names in the first column of tables.
func firstCells(text string) []string { return matches("(?m)^\\| `([\\w.]+)` \\|", text) }

// matches returns the first group of each match.
func matches(pattern, text string) []string {
	var groups []string
	for _, match := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		groups = append(groups, match[1])
	}
	return groups
}
