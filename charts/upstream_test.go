package charts_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// upstreamValue is a value of upstream Akri's chart, and another one of the same type.
type upstreamValue struct {
	Key            string
	Default, Other any
}

// upstreamValues returns all values of upstream Akri's chart.
func upstreamValues(t *testing.T) []upstreamValue {
	t.Helper()
	var values []upstreamValue
	for line := range strings.Lines(read(t, "charts/testdata/upstream-values.tsv")) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		key, encoded, found := strings.Cut(strings.TrimSpace(line), "\t")
		require.True(t, found, line)
		value := upstreamValue{Key: key}
		require.NoError(t, json.Unmarshal([]byte(encoded), &value.Default), line)
		value.Other = otherOf(t, value)
		values = append(values, value)
	}
	require.Len(t, values, 321)
	return values
}

// others are values by the end of their key, where the type of the default is not enough.
var others = map[string]any{
	".pullPolicy": "Never", ".type": "NodePort", ".protocol": "UDP", ".restartPolicy": "Never", ".permissions": "r", ".action": "Include",
	"memoryRequest": "7Mi", "memoryLimit": "7Mi", "cpuRequest": "7m", "cpuLimit": "7m", ".host.udev": "/x",
	".tolerations": []any{map[string]any{"key": "a"}}, "imagePullSecrets": []any{map[string]any{"name": "a"}},
	".discoveryProperties": []any{map[string]any{"name": "A", "value": "b"}}, ".brokerPod.securityContext": map[string]any{"runAsUser": 7},
	".command": []any{"a"}, ".udevRules": []any{`KERNEL=="b"`},
}

func otherOf(t *testing.T, value upstreamValue) any {
	t.Helper()
	for end, other := range others {
		if strings.HasSuffix(value.Key, end) {
			return other
		}
	}
	switch byDefault := value.Default.(type) {
	case nil:
		return "other"
	case bool:
		return !byDefault
	case float64:
		return byDefault + 1
	case string:
		return byDefault + "other"
	case []any:
		return []any{"other"}
	case map[string]any:
		return map[string]any{"a": "other"}
	}
	require.FailNow(t, "no other value", value.Key)
	return nil
}

// setJSON returns the arguments --set-json KEY=VALUE, in the order of the keys.
func setJSON(t *testing.T, values map[string]any) []string {
	t.Helper()
	var arguments []string
	for _, key := range slices.Sorted(maps.Keys(values)) {
		encoded, err := json.Marshal(values[key])
		require.NoError(t, err)
		arguments = append(arguments, "--set-json", key+"="+string(encoded))
	}
	return arguments
}

// TestUpstreamValuesHaveAnOutcome checks that each value of upstream Akri's chart has an entry in
// files/upstream.yaml, and that each entry is for a value.
func TestUpstreamValuesHaveAnOutcome(t *testing.T) {
	used := map[string]bool{}
	for _, value := range upstreamValues(t) {
		entry, found := sources(t).UpstreamOf(value.Key)
		require.True(t, found, "%s: add it to charts/akri/files/upstream.yaml", value.Key)
		require.NotEmpty(t, entry.Applied+entry.Refused+entry.Noted, value.Key)
		used[entry.Value] = true
	}
	for _, entry := range sources(t).Upstream {
		require.True(t, used[entry.Value], "%s: no value of upstream Akri's chart", entry.Value)
	}
}

// TestDefaultsOfUpstream compares the defaults of applied values with those of upstream Akri's
// chart, because a user who moves has not set them. Each difference has a reason in
// files/upstream.yaml.
func TestDefaultsOfUpstream(t *testing.T) {
	for _, value := range upstreamValues(t) {
		entry, _ := sources(t).UpstreamOf(value.Key)
		if entry.Applied == "" {
			continue
		}
		own := defaultOf(t, value.Key)
		if same := isUnset(own) && isUnset(value.Default) || reflect.DeepEqual(own, value.Default); same {
			require.Empty(t, entry.Differs, "%s: the default is the same", value.Key)
		} else {
			require.NotEmpty(t, entry.Differs, "%s: the default is %v, and that of upstream Akri %v: add the reason to charts/akri/files/upstream.yaml", value.Key, own, value.Default)
		}
	}
}

// defaultOf returns the default of a value in the chart or in its sub-chart.
func defaultOf(t *testing.T, key string) any {
	t.Helper()
	if key == "cleanupHook.enabled" {
		key = "cleanup.enabled" // its name here
	}
	section, below, _ := strings.Cut(key, ".")
	path, fields := "charts/akri/values.yaml", strings.Split(key, ".")
	if section == "agent" {
		path, fields = "charts/akri/charts/agent/values.yaml", strings.Split(below, ".")
	}

	var values map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(read(t, path)), &values))
	own, found, err := unstructured.NestedFieldNoCopy(values, fields...)
	require.NoError(t, err)
	require.True(t, found, "%s is applied, but not in %s", key, path)
	return own
}

// isUnset returns whether the default of a value means that it is not set.
func isUnset(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case string:
		return value == ""
	case []any:
		return len(value) == 0
	case map[string]any:
		return len(value) == 0
	}
	return false
}

// TestUpstreamValuesAreRefused sets all values that are refused. One error names each of them with
// its replacement, and nothing else.
func TestUpstreamValuesAreRefused(t *testing.T) {
	for _, agent := range []bool{false, true} {
		values, expected := map[string]any{"global.agent.enabled": agent}, map[string]string{}
		for _, value := range upstreamValues(t) {
			entry, _ := sources(t).UpstreamOf(value.Key)
			if entry.Refused == "" || agent && slices.Contains(entry.Unless, "global.agent.enabled=true") {
				continue
			}
			values[value.Key] = value.Other
			name := value.Key
			if _, mapping := value.Other.(map[string]any); mapping {
				name += ".a"
			}
			expected[name] = replacement(t, value.Key, entry.Refused)
		}
		require.NotEmpty(t, expected)
		_, err := render(t, setJSON(t, values)...)
		require.Error(t, err)
		require.Equal(t, expected, linesOf(err.Error(), "these values of upstream Akri's chart do not exist here (docs/how-to/move-from-akri.md):\n"))
	}
	_, err := render(t, set("debugEcho.configuration.enabled=true", "debugEcho.configuration.shared=false", "handler-debug-echo.shared=false")...)
	require.NoError(t, err)
}

// TestUpstreamValuesAreNoted sets all values without the effect that they have in the other chart.
// The notes name each of them with the reason, and no other value. So does a ConfigMap, because
// helm template, Argo CD and Flux show no notes.
func TestUpstreamValuesAreNoted(t *testing.T) {
	const heading = "These values of upstream Akri's chart do not have their effect (docs/how-to/move-from-akri.md):\n"
	require.NotContains(t, notes(t), heading)
	require.Nil(t, noted(t))

	values, expected := map[string]any{}, map[string]string{}
	for _, value := range upstreamValues(t) {
		if entry, _ := sources(t).UpstreamOf(value.Key); entry.Noted != "" {
			values[value.Key], expected[value.Key] = value.Other, entry.Noted
		}
	}
	require.NotEmpty(t, expected)
	require.Equal(t, expected, linesOf(notes(t, setJSON(t, values)...), heading))
	require.Equal(t, expected, noted(t, setJSON(t, values)...))
	// Several releases of Configurations fit into a namespace, so the name has that of the release.
	require.Equal(t, expected, noted(t, append(setJSON(t, values), "--set", "services.enabled=false")...))
}

// noted returns the data of the ConfigMap akri-upstream-values, or nil if there is none.
func noted(t *testing.T, arguments ...string) map[string]string {
	t.Helper()
	rendered, err := render(t, arguments...)
	require.NoError(t, err)
	for _, object := range decode[corev1.ConfigMap](t, rendered, "ConfigMap") {
		if object.Name == "akri-upstream-values" {
			require.Equal(t, "akri-system", object.Namespace)
			// kubectl akri check selects it by these labels.
			require.Equal(t, "akri", object.Labels["app.kubernetes.io/part-of"])
			require.Equal(t, "upstream-values", object.Labels["app.kubernetes.io/component"])
			require.Equal(t, "akri", object.Labels["app.kubernetes.io/instance"])
			return object.Data
		}
	}
	return nil
}

// linesOf returns the texts in the lines `  NAME: TEXT` after a heading.
func linesOf(output, heading string) map[string]string {
	_, rest, _ := strings.Cut(output, heading)
	found := map[string]string{}
	for line := range strings.Lines(rest) {
		name, text, _ := strings.Cut(line, ": ")
		if !strings.HasPrefix(name, "  ") {
			break
		}
		found[strings.TrimSpace(name)] = strings.TrimSpace(text)
	}
	return found
}

func replacement(t *testing.T, key, text string) string {
	t.Helper()
	for _, handler := range sources(t).Handlers {
		if strings.HasPrefix(key, handler.Name+".") {
			return strings.ReplaceAll(text, "<service>", handler.Service)
		}
	}
	return text
}

// TestUpstreamValuesAreApplied renders upstream Akri's defaults of the values that are applied,
// sets each value to another one, and compares the changed fields of the objects with
// testdata/upstream-applied.golden.txt. A handler has files of its own, so that a render tests one
// value of each handler.
func TestUpstreamValuesAreApplied(t *testing.T) {
	t.Parallel()
	batches, defaults := map[string][]upstreamValue{}, map[string]map[string]any{}
	for _, value := range upstreamValues(t) {
		if entry, _ := sources(t).UpstreamOf(value.Key); entry.Applied != "" {
			name := value.Key
			if sourceOf(t, value.Key) != "" {
				_, name, _ = strings.Cut(value.Key, ".")
			}
			batches[name] = append(batches[name], value)
			base := baseOf(name)
			if defaults[base] == nil {
				defaults[base] = map[string]any{}
			}
			if value.Default != nil && !strings.HasSuffix(value.Key, ".tolerations") { // {}, but a list
				defaults[base][value.Key] = value.Default
			}
		}
	}
	was := map[string]map[field]string{}
	for base, values := range defaults {
		maps.Copy(values, companions(t, base))
		rendered, err := render(t, setJSON(t, values)...)
		require.NoError(t, err)
		was[base] = fieldsOf(t, rendered)
	}

	var mu sync.Mutex
	effects := map[string]string{}
	t.Run("values", func(t *testing.T) {
		for name, batch := range batches {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				base := baseOf(name)
				values := maps.Clone(defaults[base])
				for i, value := range batch {
					if reflect.DeepEqual(values[value.Key], value.Other) {
						batch[i].Other = value.Default // another value requires this one
					}
					values[value.Key] = batch[i].Other
				}
				rendered, err := render(t, setJSON(t, values)...)
				require.NoError(t, err)
				changed := changes(was[base], fieldsOf(t, rendered))
				for _, value := range batch {
					encoded, err := json.Marshal(value.Other)
					require.NoError(t, err)
					effect := take(changed, sourceOf(t, value.Key))
					require.NotEmpty(t, effect, "%s=%s has no effect", value.Key, encoded)
					for _, text := range textsOf(value.Other) {
						require.Contains(t, effect, text, "%s is not in the objects", value.Key)
					}
					mu.Lock()
					effects[value.Key] = value.Key + "=" + string(encoded) + "\n" + effect
					mu.Unlock()
				}
				if rest := take(changed, ""); rest != "" {
					mu.Lock()
					effects[name+" "] = name + " of all handlers\n" + rest
					mu.Unlock()
				}
			})
		}
	})
	if t.Failed() {
		return
	}
	var text strings.Builder
	for _, key := range slices.Sorted(maps.Keys(effects)) {
		text.WriteString(effects[key])
	}
	const golden = "testdata/upstream-applied.golden.txt"
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(text.String()), 0o644))
	}
	require.Equal(t, read(t, "charts/"+golden), text.String(), "run make charts, and check that each value appears where it must")
}

// textsOf returns the numbers and strings in a value.
func textsOf(value any) (texts []string) {
	switch value := value.(type) {
	case map[string]any:
		for _, below := range value {
			texts = append(texts, textsOf(below)...)
		}
	case []any:
		for _, below := range value {
			texts = append(texts, textsOf(below)...)
		}
	case string:
		encoded := strconv.Quote(value)
		texts = append(texts, encoded[1:len(encoded)-1])
	case float64, int:
		texts = append(texts, fmt.Sprint(value))
	}
	return texts
}

// field is a field of a rendered object.
type field struct{ source, object, path string }

// fieldsOf returns the values of all fields in rendered manifests.
func fieldsOf(t *testing.T, rendered string) map[field]string {
	t.Helper()
	fields := map[field]string{}
	for document := range strings.SplitSeq(rendered, "\n---\n") {
		_, source, _ := strings.Cut(document, "# Source: ")
		source, _, _ = strings.Cut(source, "\n")
		var object map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(document), &object))
		if len(object) == 0 {
			continue
		}
		metadata := object["metadata"].(map[string]any)
		addFields(t, fields, field{source: source, object: fmt.Sprintf("%s %s", object["kind"], metadata["name"])}, object)
	}
	return fields
}

// addFields adds the fields of a value. Lists of objects with names are compared by name. Details,
// which are YAML, have fields too.
func addFields(t *testing.T, fields map[field]string, at field, value any) {
	t.Helper()
	below := func(key string, value any) {
		next := at
		next.path = strings.TrimPrefix(at.path+"."+key, ".")
		addFields(t, fields, next, value)
	}
	switch value := value.(type) {
	case map[string]any:
		for key, value := range value {
			below(key, value)
		}
	case []any:
		for i, item := range value {
			name := strconv.Itoa(i)
			if object, found := item.(map[string]any); found && object["name"] != nil {
				name = fmt.Sprint(object["name"])
			}
			below(name, item)
		}
	case string:
		var details map[string]any
		if strings.HasSuffix(at.path, ".discoveryDetails") && yaml.Unmarshal([]byte(value), &details) == nil && len(details) > 0 {
			addFields(t, fields, at, details)
			return
		}
		fields[at] = strconv.Quote(value)
	default:
		fields[at] = fmt.Sprint(value)
	}
}

// changes returns a line for each field that differs. An object that exists in one of them is one
// line.
func changes(was, is map[field]string) map[field]string {
	objects := func(fields map[field]string) map[field]bool {
		found := map[field]bool{}
		for f := range fields {
			found[field{source: f.source, object: f.object}] = true
		}
		return found
	}
	before, after := objects(was), objects(is)
	changed := map[field]string{}
	for _, fields := range []map[field]string{was, is} {
		for f := range fields {
			object := field{source: f.source, object: f.object}
			old, existed := was[f]
			current, exists := is[f]
			switch {
			case !after[object]:
				changed[object] = "  - " + f.object + "\n"
			case !before[object]:
				changed[object] = "  + " + f.object + "\n"
			case old != current || existed != exists:
				changed[f] = fmt.Sprintf("  %s: %s: %s -> %s\n", f.object, f.path, cmp.Or(old, "none"), cmp.Or(current, "none"))
			}
		}
	}
	return changed
}

// take removes the changes of a file or directory and returns their lines.
func take(changed map[field]string, source string) string {
	var lines []string
	for f, line := range changed {
		if strings.HasPrefix(f.source, source) {
			lines = append(lines, line)
			delete(changed, f)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

// baseOf returns the name of the release in which a value has an effect.
func baseOf(name string) string {
	if strings.HasPrefix(name, "configuration.brokerJob.") {
		return "configuration.brokerJob"
	}
	section, _, _ := strings.Cut(name, ".")
	return section
}

// companions returns the values without which the values of a release have no effect. Services that
// do not matter are left out.
func companions(t *testing.T, base string) map[string]any {
	t.Helper()
	values := map[string]any{}
	broker := "brokerPod"
	if base == "configuration.brokerJob" {
		broker = "brokerJob"
	}
	switch base {
	case "agent":
		values["global.agent.enabled"] = true
		values["global.agent.handlers"] = []any{"udev"}
	case "configuration", "configuration.brokerJob", "imagePullSecrets":
		values["services.enabled"] = false
		for handler := range upstreamSources(t) {
			values[handler+".configuration.enabled"] = true
			values[handler+".configuration."+broker+".image.repository"] = "broker"
		}
		values["custom.configuration.discoveryHandlerName"] = "mine"
		values["udev.configuration.discoveryDetails.udevRules"] = []any{`KERNEL=="a"`}
	case "discovery":
		for handler := range upstreamSources(t) {
			values[handler+".discovery.enabled"] = true
			values[handler+".discovery.useNetworkConnection"] = true
		}
		values["custom.discovery.image.repository"] = "handler"
	case "prometheus":
		values["prometheus.enabled"] = true
	}
	return values
}

// upstreamSources returns the names of the files that have the Configuration and the handler,
// without prefix, by the section of their values.
func upstreamSources(t *testing.T) map[string]string {
	t.Helper()
	names := map[string]string{"custom": "custom"}
	for _, handler := range sources(t).Handlers {
		if handler.Upstream() {
			names[handler.Name] = strings.TrimPrefix(handler.Service, "handler-")
		}
	}
	return names
}

// sourceOf returns the file or directory with the objects of a value, or nothing if the value is
// not that of a handler.
func sourceOf(t *testing.T, key string) string {
	t.Helper()
	parts := strings.Split(key, ".")
	name, found := upstreamSources(t)[parts[0]]
	switch {
	case !found:
		return ""
	case parts[1] == "configuration":
		return "akri/templates/configuration-" + name + ".yaml"
	case parts[0] == "custom":
		return "akri/templates/custom-discovery.yaml"
	}
	return "akri/charts/handler-" + name + "/"
}
