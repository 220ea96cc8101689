package metricstest_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"akri.sh/libs/metricstest"
)

const (
	first = "# Metrics\n\n## first\n\n| a |\n\n"
	table = "| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n" +
		"| `akri_lamps` | gauge | `color` | Lamps, by color. |\n"
	document = first + "## second\n\nText.\n\n" + table + "\nText.\n"
)

// The tests of the services compare the sections.
func TestDocumentHasNoOtherSections(t *testing.T) {
	content, err := os.ReadFile("../../docs/metrics.md")
	require.NoError(t, err)
	var sections []string
	for _, match := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(string(content), -1) {
		sections = append(sections, match[1])
	}
	files, err := filepath.Glob("../../services/*/metrics.go")
	require.NoError(t, err)
	want := []string{"Who can read them", "Every service", "Every Discovery Handler", "agent"}
	for _, file := range files {
		want = append(want, filepath.Base(filepath.Dir(file)))
	}
	require.Equal(t, want, sections)
}

func TestCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "metrics.md")
	require.NoError(t, os.WriteFile(file, []byte(document), 0o600))
	metricstest.Check(t, lamps(), file, "second")
}

func TestUpdateAddsSections(t *testing.T) {
	file := filepath.Join(t.TempDir(), "metrics.md")
	require.NoError(t, os.WriteFile(file, []byte(first+"## third\n"), 0o600))
	t.Setenv("AKRI_UPDATE_METRICS", "1")
	metricstest.Check(t, lamps(), file, "second")
	updated, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, first+"## second\n\n"+table+"\n## third\n", string(updated))
}

func lamps() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	lamps := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "akri_lamps", Help: "Lamps, by color."}, []string{"color"})
	registry.MustRegister(lamps)
	lamps.WithLabelValues("red")
	return registry
}
