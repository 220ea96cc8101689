// Package metricstest compares the metrics of a service with the conventions of Prometheus and with
// their description in docs/metrics.md.
package metricstest

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
)

// ofUpstream are metrics whose names upstream Akri chose. They violate the conventions.
var ofUpstream = []string{
	"akri_instance_count", "akri_broker_pod_count", "akri_discovery_response_time", "akri_discovery_response_result",
}

// Check fails the test if a name, a help text or a label of a registered Akri metric violates the
// conventions, or if the table in the section of the file differs from the registered metrics. With
// AKRI_UPDATE_METRICS=1 it writes the table instead. Each metric needs a series, because only
// series have a type.
func Check(t *testing.T, registry *prometheus.Registry, file, section string) {
	t.Helper()
	problems, err := testutil.GatherAndLint(registry, registered(registry)...)
	require.NoError(t, err)
	problems = slices.DeleteFunc(problems, func(p promlint.Problem) bool { return slices.Contains(ofUpstream, p.Metric) })
	require.Empty(t, problems, "violated conventions")

	families, err := registry.Gather()
	require.NoError(t, err)
	described := map[string]string{}
	for _, family := range families {
		if ofAkri(family.GetName()) {
			described[family.GetName()] = describe(family)
		}
	}
	require.Equal(t, registered(registry), slices.Sorted(maps.Keys(described)), "metrics that are registered, metrics with a series")
	table := []string{"| Metric | Type | Labels | Meaning |", "|---|---|---|---|"}
	for _, name := range slices.Sorted(maps.Keys(described)) {
		table = append(table, described[name])
	}
	compare(t, file, section, strings.Join(table, "\n"))
}

var namePattern = regexp.MustCompile(`fqName: "([^"]+)"`)

// registered returns the names of Akri's metrics in alphabetical order.
func registered(registry *prometheus.Registry) []string {
	descriptions := make(chan *prometheus.Desc)
	go func() { registry.Describe(descriptions); close(descriptions) }()
	var names []string
	for description := range descriptions {
		if name := namePattern.FindStringSubmatch(description.String())[1]; ofAkri(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func ofAkri(name string) bool { return strings.HasPrefix(name, "akri_") }

// describe returns the row of a metric.
func describe(family *dto.MetricFamily) string {
	var labels []string
	for _, label := range family.GetMetric()[0].GetLabel() {
		labels = append(labels, "`"+label.GetName()+"`")
	}
	kind := strings.ToLower(family.GetType().String())
	return fmt.Sprintf("| `%s` | %s | %s | %s |", family.GetName(), kind, strings.Join(labels, ", "), family.GetHelp())
}

var tablePattern = regexp.MustCompile(`(?m)^\|.*(\n\|.*)*`)

// compare compares the table with the first one in the section.
func compare(t *testing.T, file, section, table string) {
	t.Helper()
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	sections := strings.Split(string(content), "\n## ")
	i := slices.IndexFunc(sections, func(s string) bool { return strings.HasPrefix(s, section+"\n") })
	if os.Getenv("AKRI_UPDATE_METRICS") == "" {
		require.GreaterOrEqual(t, i, 0, "%s has no section %q; fix: make metrics", file, section)
		require.Equal(t, tablePattern.FindString(sections[i]), table, "section %q of %s; fix: make metrics", section, file)
		return
	}

	if i < 0 { // a new service
		i = slices.IndexFunc(sections[1:], func(s string) bool { return s > section }) + 1
		require.Positive(t, i, "%s has no section after %q", file, section)
		sections = slices.Insert(sections, i, section+"\n\n|\n")
	}
	position := tablePattern.FindStringIndex(sections[i])
	require.NotNil(t, position, "section %q of %s has no table", section, file)
	sections[i] = sections[i][:position[0]] + table + sections[i][position[1]:]
	require.NoError(t, os.WriteFile(file, []byte(strings.Join(sections, "\n## ")), 0o644))
}
