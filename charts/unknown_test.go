package charts_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// openValues are the objects in which any key is allowed. In a pattern * stands for a part of a
// key, and 0 for the items of a list.
var openValues = []string{
	// Users choose the keys.
	"*.env", "*.nodeSelector", "*.podAnnotations", "*.podLabels", "*.serviceAccountAnnotations", "*.resources.limits", "*.resources.requests", "*.relay.resources.limits", "*.relay.resources.requests",
	"global.nodePlane.nodeSelector", "global.nodePlane.seLinuxOptions", "global.allowFromHandlers", "configurations",
	"prometheus.labels", "prometheus.rules.for", "prometheus.dashboard.labels", "prometheus.dashboard.annotations",
	"custom.discovery.nodeSelectors", "udev.configuration.discoveryDetails.properties",
	"*.configuration.brokerProperties", "*.configuration.broker*.env",
	// The chart copies the objects into those that the API server checks.
	"configurations.any", "*.configuration.discoveryProperties.0", "*.configuration.broker*.extraEnv.0", "*.configuration.brokerPod.ports.0",
	"*.configuration.brokerPod.readinessProbe", "*.configuration.broker*.securityContext", "*.configuration.broker*.podSecurityContext.*",
	"*.affinity.*", "*.extraEnv.0.valueFrom", "*.topologySpreadConstraints.0", "*.podSecurityContext.*", "*.securityContext.*",
	"*.allowFrom.0.*", "global.networkPolicy.*.0.*", "console.proxy.*.0",
}

// unknownKey is no key of any object.
const unknownKey = "unknownKey"

var unknownKeys = regexp.MustCompile(`(?m)^ *- at '(.*)': additional properties '` + unknownKey + `' not allowed$`)

// TestUnknownKeysAreErrors sets an unknown key in each object of the values, at any depth, while
// all services are disabled and while all are enabled. One error names the objects of all.
func TestUnknownKeysAreErrors(t *testing.T) {
	var walk schemaWalk
	values := walk.fill(completeSchema(t), nil).(map[string]any)
	slices.Sort(walk.closed)
	require.Greater(t, len(walk.closed), 200)
	require.Empty(t, slices.DeleteFunc(slices.Clone(walk.open), func(name string) bool {
		return slices.ContainsFunc(openValues, func(pattern string) bool { return standsFor(pattern, name) })
	}), "these objects admit any key: add their keys to the schema, or, if users choose the keys, the objects to openValues")
	for _, pattern := range openValues {
		require.True(t, slices.ContainsFunc(walk.open, func(name string) bool { return standsFor(pattern, name) }), "%s: no such value", pattern)
	}
	for _, pointer := range objectsOf(t) {
		name := strings.ReplaceAll(strings.TrimPrefix(pointer, "/"), "/", ".")
		require.True(t, slices.Contains(walk.closed, pointer) || slices.Contains(walk.open, name), "%s: not in the schema", name)
	}

	content, err := yaml.Marshal(values)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(file, content, 0o600))
	for name, state := range map[string][]string{
		"disabled": set("services.enabled=false"),
		"enabled":  set("global.agent.enabled=true", "console.enabled=true", "global.resources=dra"),
	} {
		t.Run(name, func(t *testing.T) {
			if name == "enabled" {
				state = append(state, allHandlers(t)...)
			}
			_, err := render(t, append([]string{"--values", file}, state...)...)
			require.Error(t, err)
			_, section, found := strings.Cut(err.Error(), "\nakri:\n")
			require.True(t, found, err)
			section, _, _ = strings.Cut(section, ":\n- ") // the errors of another chart
			var refused []string
			for _, match := range unknownKeys.FindAllStringSubmatch(section, -1) {
				refused = append(refused, match[1])
			}
			slices.Sort(refused)
			require.Equal(t, walk.closed, refused)
		})
	}

	// An unknown key below a value that only upstream Akri has is refused with it.
	values, expected := map[string]any{"services.enabled": false}, map[string]string{}
	for _, name := range walk.any {
		if entry, found := sources(t).UpstreamOf(name); found && entry.Refused != "" && len(entry.Unless) == 0 {
			values[name+"."+unknownKey] = true
			expected[name+"."+unknownKey] = replacement(t, name, entry.Refused)
		}
	}
	require.NotEmpty(t, expected)
	_, err = render(t, setJSON(t, values)...)
	require.Error(t, err)
	require.Equal(t, expected, linesOf(err.Error(), "these values of upstream Akri's chart do not exist here (docs/how-to/move-from-akri.md):\n"))
}

// schemaWalk collects the objects of a schema: the JSON pointers of those that admit only known
// keys, the names of those that admit any, and the names of the values of any type.
type schemaWalk struct{ closed, open, any []string }

// fill returns a value of the schema that has unknownKey in each object that admits only known
// keys, or nil.
func (w *schemaWalk) fill(schema map[string]any, path []string) any {
	below := func(key string, schema any) any {
		return w.fill(schema.(map[string]any), append(slices.Clone(path), key))
	}
	name := strings.Join(path, ".")
	_, global, found := strings.Cut(name, ".global.")
	if found {
		name = "global." + global // that of the release, in a sub-chart
	}

	properties, _ := schema["properties"].(map[string]any)
	switch {
	case len(schema) == 0:
		w.any = append(w.any, name)
	case schema["additionalProperties"] == false:
		w.closed = append(w.closed, strings.Join(append([]string{""}, path...), "/"))
		object := map[string]any{unknownKey: true}
		for _, key := range slices.Sorted(maps.Keys(properties)) {
			if filled := below(key, properties[key]); filled != nil {
				object[key] = filled
			}
		}
		return object
	case schema["items"] != nil:
		if filled := below("0", schema["items"]); filled != nil {
			return []any{filled}
		}
	case schema["additionalProperties"] != nil:
		w.open = append(w.open, name)
		if filled := below("any", schema["additionalProperties"]); filled != nil {
			return map[string]any{"any": filled}
		}
	case schema["type"] == "object":
		w.open = append(w.open, name)
	}
	return nil
}

// completeSchema returns the schema of the chart akri with those of the sub-charts, which have the
// types of their values, and without references.
func completeSchema(t *testing.T) map[string]any {
	t.Helper()
	complete := schemaOf(t, "charts/akri")
	sections := complete["properties"].(map[string]any)
	for _, name := range dependencies(t) {
		if name == "akri-library" {
			continue
		}
		section := schemaOf(t, "charts/akri/charts/"+name)
		keys, found := sections[name].(map[string]any)["properties"].(map[string]any)
		require.True(t, found, "%s: its keys are not in the schema of the chart akri", name)
		section["properties"].(map[string]any)["global"] = keys["global"]
		sections[name] = section
	}
	return complete
}

func schemaOf(t *testing.T, chart string) map[string]any {
	t.Helper()
	var schema map[string]any
	require.NoError(t, json.Unmarshal([]byte(read(t, chart+"/values.schema.json")), &schema))
	return resolved(schema, schema["$defs"].(map[string]any)).(map[string]any)
}

// resolved returns a copy of a part of a schema without references.
func resolved(part any, defs map[string]any) any {
	switch part := part.(type) {
	case []any:
		var list []any
		for _, item := range part {
			list = append(list, resolved(item, defs))
		}
		return list
	case map[string]any:
		if reference, found := part["$ref"].(string); found {
			return resolved(defs[strings.TrimPrefix(reference, "#/$defs/")], defs)
		}
		object := map[string]any{}
		for key, value := range part {
			if key != "$defs" {
				object[key] = resolved(value, defs)
			}
		}
		return object
	}
	return part
}

// objectsOf returns the JSON pointers of all objects in the default values.
func objectsOf(t *testing.T) []string {
	t.Helper()
	var pointers []string
	var add func(pointer string, value any)
	add = func(pointer string, value any) {
		object, found := value.(map[string]any)
		if !found {
			return
		}
		pointers = append(pointers, pointer)
		for key, value := range object {
			add(pointer+"/"+key, value)
		}
	}
	for _, name := range append([]string{""}, dependencies(t)...) {
		file, pointer := "charts/akri/values.yaml", ""
		if name != "" {
			file, pointer = "charts/akri/charts/"+name+"/values.yaml", "/"+name
		}
		var values map[string]any
		require.NoError(t, yaml.Unmarshal([]byte(read(t, file)), &values))
		add(pointer, values)
	}
	return pointers
}
