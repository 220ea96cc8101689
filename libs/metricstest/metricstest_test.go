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

const document = "# Metrics\n\n## first\n\n| a |\n\n## second\n\nText.\n\n" +
	"| Metric | Type | Labels | Meaning |\n|---|---|---|---|\n" +
	"| `akri_lamps` | gauge | `color` | Lamps, by color. |\n\nText.\n"

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
	want := []string{"Every service", "Every Discovery Handler", "agent"}
	for _, file := range files {
		want = append(want, filepath.Base(filepath.Dir(file)))
	}
	require.Equal(t, want, sections)
}

func TestCheck(t *testing.T) {
	file := filepath.Join(t.TempDir(), "metrics.md")
	require.NoError(t, os.WriteFile(file, []byte(document), 0o600))
	registry := prometheus.NewRegistry()
	lamps := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "akri_lamps", Help: "Lamps, by color."}, []string{"color"})
	registry.MustRegister(lamps)
	lamps.WithLabelValues("red")
	metricstest.Check(t, registry, file, "second")
}
