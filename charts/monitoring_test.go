package charts_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

type rule struct {
	Alert, Expr, For string
	Annotations      map[string]string
}

// renderRules returns the spec of the PrometheusRule.
func renderRules(t *testing.T, values ...string) (text []byte, rules []rule) {
	t.Helper()
	rendered, err := render(t, append(set("prometheus.rules.enabled=true"), values...)...)
	require.NoError(t, err)
	for document := range strings.SplitSeq(rendered, "\n---\n") {
		var object struct {
			Kind string
			Spec json.RawMessage
		}
		require.NoError(t, yaml.Unmarshal([]byte(document), &object))
		if object.Kind == "PrometheusRule" {
			var spec struct{ Groups []struct{ Rules []rule } }
			require.NoError(t, json.Unmarshal(object.Spec, &spec))
			return object.Spec, spec.Groups[0].Rules
		}
	}
	require.FailNow(t, "the chart has no PrometheusRule")
	return nil, nil
}

// promtool runs promtool in a directory with the files.
func promtool(t *testing.T, files map[string][]byte, arguments ...string) {
	t.Helper()
	directory := t.TempDir()
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(directory, name), content, 0o600))
	}
	command := exec.CommandContext(t.Context(), "promtool", arguments...)
	command.Dir = directory
	output, err := command.CombinedOutput()
	require.NoError(t, err, "promtool %v: %s", arguments, output)
}

// TestAlertsFireAndClear runs the scenarios of testdata/alerts.test.yaml, in which dra-controller
// does not run. Each alert has one.
func TestAlertsFireAndClear(t *testing.T) {
	text, rules := renderRules(t, set("global.resources=devicePlugin")...)
	promtool(t, map[string][]byte{"rules.yaml": text}, "check", "rules", "rules.yaml")
	scenarios, err := os.ReadFile("testdata/alerts.test.yaml")
	require.NoError(t, err)
	promtool(t, map[string][]byte{"rules.yaml": text, "test.yaml": scenarios}, "test", "rules", "test.yaml")
	for _, rule := range rules {
		require.Contains(t, string(scenarios), `ALERTS{alertname="`+rule.Alert+`"`, "no scenario of the alert")
	}
}

// TestAlertOfDRAController runs the scenarios of testdata/alerts-dra.test.yaml.
func TestAlertOfDRAController(t *testing.T) {
	text, _ := renderRules(t, set("global.resources=dra")...)
	scenarios, err := os.ReadFile("testdata/alerts-dra.test.yaml")
	require.NoError(t, err)
	promtool(t, map[string][]byte{"rules.yaml": text, "test.yaml": scenarios}, "test", "rules", "test.yaml")
}

func TestValuesOfAlerts(t *testing.T) {
	_, rules := renderRules(t, set("prometheus.rules.for.AkriHandlerOffline=0s", "prometheus.rules.disabled={AkriNoLeader}",
		"prometheus.rules.flapping.window=20s", "prometheus.rules.runbook=https://example.com/runbook")...)
	require.Len(t, rules, len(sources(t).Alerts)-1)
	for _, rule := range rules {
		require.NotEqual(t, "AkriNoLeader", rule.Alert)
		require.Equal(t, "https://example.com/runbook#"+strings.ToLower(rule.Alert), rule.Annotations["runbook_url"])
		switch rule.Alert {
		case "AkriHandlerOffline":
			require.Equal(t, "0s", rule.For)
		case "AkriDeviceFlapping":
			require.Contains(t, rule.Expr, "[20s]")
		}
	}
}

func TestNoAlertOfADisabledBrokerController(t *testing.T) {
	_, rules := renderRules(t, set("broker-controller.enabled=false")...)
	for _, rule := range rules {
		require.NotContains(t, rule.Expr, "absent(akri_broker_controller_leading)", rule.Alert)
	}
}

func TestEachAlertHasASectionOfTheRunbook(t *testing.T) {
	var sections, alerts []string
	for _, match := range regexp.MustCompile(`(?m)^## (.*)$`).FindAllStringSubmatch(read(t, "docs/runbook.md"), -1) {
		sections = append(sections, match[1])
	}
	for _, alert := range sources(t).Alerts {
		alerts = append(alerts, alert.Name)
	}
	require.Equal(t, alerts, sections)
}

// documentedMetrics returns the names in docs/metrics.md, with those of the series of histograms.
// The tests of the services compare docs/metrics.md with the registered metrics.
func documentedMetrics(t *testing.T) []string {
	t.Helper()
	var names []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\w+) ").FindAllStringSubmatch(read(t, "docs/metrics.md"), -1) {
		names = append(names, row[1])
		if row[2] == "histogram" {
			names = append(names, row[1]+"_bucket", row[1]+"_sum", row[1]+"_count")
		}
	}
	require.NotEmpty(t, names)
	return names
}

var metricPattern = regexp.MustCompile(`\bakri_\w+`)

func TestAlertsUseMetricsThatExist(t *testing.T) {
	documented := documentedMetrics(t)
	for _, alert := range sources(t).Alerts {
		used := metricPattern.FindAllString(alert.Expr, -1)
		require.NotEmpty(t, used, alert.Name)
		require.Subset(t, documented, used, alert.Name)
	}
}

// dashboardExpressions returns the expressions of the dashboard that the chart renders, with values
// for the variables of Grafana.
func dashboardExpressions(t *testing.T) []string {
	t.Helper()
	rendered, err := render(t, append(set("prometheus.dashboard.enabled=true"), "--show-only", "templates/dashboard.yaml")...)
	require.NoError(t, err)
	var configMap struct{ Data map[string]string }
	require.NoError(t, yaml.Unmarshal([]byte(rendered), &configMap))
	require.Equal(t, []string{"akri.json"}, slices.Collect(maps.Keys(configMap.Data)))
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct{ List []struct{ Query string } }
	}
	require.NoError(t, json.Unmarshal([]byte(configMap.Data["akri.json"]), &dashboard))
	variables := strings.NewReplacer("$__rate_interval", "5m", "$configuration", ".*")
	var expressions []string
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			expressions = append(expressions, variables.Replace(target.Expr))
		}
	}
	for _, variable := range dashboard.Templating.List {
		if argument, found := strings.CutPrefix(variable.Query, "label_values("); found {
			metric, _, _ := strings.Cut(argument, ",")
			expressions = append(expressions, metric)
		}
	}
	return expressions
}

func TestDashboardUsesMetricsThatExist(t *testing.T) {
	documented, expressions := documentedMetrics(t), dashboardExpressions(t)
	require.Greater(t, len(expressions), 10)
	var rules []map[string]string
	for i, expression := range expressions {
		used := metricPattern.FindAllString(expression, -1)
		require.NotEmpty(t, used, expression)
		require.Subset(t, documented, used, expression)
		rules = append(rules, map[string]string{"record": fmt.Sprintf("panel_%d", i), "expr": expression})
	}
	// promtool parses expressions only as rules.
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	require.NoError(t, err)
	promtool(t, map[string][]byte{"rules.yaml": text}, "check", "rules", "rules.yaml")
}
