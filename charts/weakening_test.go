package charts_test

import (
	"encoding/json"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// weakening is an entry of files/weakening.yaml.
type weakening struct {
	Value, Upstream, Unless, Matches, Means string
	Safe                                    any
}

func weakenings(t *testing.T) []weakening {
	t.Helper()
	var entries []weakening
	require.NoError(t, yaml.UnmarshalStrict([]byte(read(t, "charts/akri/files/weakening.yaml")), &entries))
	return entries
}

// weak are values that weaken security, if it does not suffice to negate the safe one.
var weak = map[string]string{
	"instance-writer.rbac.secrets":               `"cluster"`,
	"instance-writer.rbac.configMaps":            `"cluster"`,
	"global.networkPolicy.metrics":               `[{"ipBlock":{"cidr":"0.0.0.0/0"}}]`,
	"global.networkPolicy.nodes":                 `[{"ipBlock":{"cidr":"::/0"}}]`,
	"console.allowFrom":                          `[{"ipBlock":{"cidr":"0.0.0.0/0"}}]`,
	"global.allowHostPaths":                      `["/a"]`,
	"global.allowDeviceClasses":                  `["tpm"]`,
	"global.allowFromHandlers":                   `{"onvif":{"deviceClasses":["*"]}}`,
	"*.metricsAddress":                           `"all"`,
	"*.podSecurityContext.seccompProfile":        `{"type":"Unconfined"}`,
	"*.podSecurityContext.appArmorProfile":       `{"type":"Unconfined"}`,
	"*.podSecurityContext.seLinuxOptions":        `{"type":"spc_t"}`,
	"*.securityContext.seccompProfile":           `{"type":"Unconfined"}`,
	"*.securityContext.appArmorProfile":          `{"type":"Unconfined"}`,
	"*.securityContext.seLinuxOptions":           `{"type":"spc_t"}`,
	"*.securityContext.procMount":                `"Unmasked"`,
	"*.extraArgs":                                `["--allow-host-paths=/"]`,
	"*.env":                                      `{"AKRI_ALLOW_HOST_PATHS":"/"}`,
	"*.extraEnv":                                 `[{"name":"AKRI_DISCOVERY_OPERATOR_ALLOW_HOST_PATHS","value":"/"}]`,
	"*.securityContext.allowPrivilegeEscalation": `null`,
	"*.securityContext.capabilities.add":         `["SYS_ADMIN"]`,
	"*.securityContext.capabilities.drop":        `["KILL"]`,
	"*.securityContext.readOnlyRootFilesystem":   `null`,
}

// TestWeakeningValues checks that the notes of a release and the ConfigMap akri-weakening name each
// value that weakens security if it is set, for each service that has it, and none by default; and
// that the value which they name restores it.
func TestWeakeningValues(t *testing.T) {
	t.Parallel()
	require.Empty(t, weakened(t))
	require.NotContains(t, notes(t), "weaken")
	two := set("broker-controller.webhook.enabled=false", "handler-udev.useNetworkConnection=true")
	lines := slices.Sorted(maps.Values(weakened(t, two...)))
	require.Len(t, lines, 2)
	require.Contains(t, notes(t, two...), "\n\nThese values weaken security (docs/security.md):\n  "+strings.Join(lines, "\n  ")+"\n")

	paths := valuePaths(t)
	for _, entry := range weakenings(t) {
		value, found := weak[entry.Value]
		if safe, boolean := entry.Safe.(bool); !found {
			require.True(t, boolean, "%s: set a value that weakens security in this test", entry.Value)
			value = map[bool]string{true: "false", false: "true"}[safe]
		}
		names := slices.DeleteFunc(valuesOf(paths, entry.Value), func(name string) bool {
			return entry.Unless == "hostNetwork" && hostNetworkOf(t, name)
		})
		require.NotEmpty(t, names, "%s: no such value", entry.Value)
		checkWeakening(t, entry, names, value)

		if entry.Upstream != "" {
			upstream := valuesOf(paths, "*."+entry.Upstream)
			checkWeakening(t, entry, slices.DeleteFunc(upstream, func(name string) bool { return strings.HasPrefix(name, "custom.") }), value)
		}
	}
}

// checkWeakening sets values, and then restores them.
func checkWeakening(t *testing.T, entry weakening, names []string, value string) {
	t.Helper()
	arguments := allServices(t)
	if strings.HasPrefix(entry.Value, "agent.") || strings.HasPrefix(entry.Value, "*.") {
		arguments = append(arguments, "--set", "global.agent.enabled=true,global.agent.handlers=null")
	}
	before := weakened(t, arguments...)
	var weak, restored []string
	for _, name := range names {
		weak = append(weak, "--set-json", name+"="+value)
	}
	if entry.Value == "agent.hostNetwork" {
		weak = append(weak, "--set-json", `global.networkPolicy.nodes=[{"ipBlock":{"cidr":"192.0.2.0/24"}}]`)
	}
	got := weakened(t, slices.Concat(arguments, weak)...)
	for _, name := range names {
		require.Contains(t, got[name], ": "+entry.Means+". Restore it with "+name+"=", name)
		_, restore, _ := strings.Cut(got[name], "Restore it with ")
		restored = append(restored, "--set-json", strings.TrimSuffix(restore, "."))
	}
	require.Len(t, got, len(before)+len(names), "%v", got)
	require.Equal(t, before, weakened(t, slices.Concat(arguments, weak, restored)...), entry.Value)
}

// TestOwnAllowListsWeaken checks that a list is named if it replaces that of a handler of this
// project, and not if it restricts a handler of others.
func TestOwnAllowListsWeaken(t *testing.T) {
	lists := func(handler string) []string {
		return []string{"--set-json", `global.allowFromHandlers={"` + handler + `":{"propertyPrefixes":["X_"]}}`}
	}
	require.Empty(t, weakened(t, lists("lamp")...))
	for _, handler := range sources(t).Handlers {
		require.Contains(t, weakened(t, lists(handler.Name)...), "global.allowFromHandlers", handler.Name)
	}
}

// harmless are the values that do not weaken security. Of the booleans and of what
// containerSettings matches, all others are in weakening.yaml.
var harmless = []string{
	// Whether a service, a Configuration or an object for monitoring exists.
	"*.enabled", "*.discovery.enabled", "*.configuration.enabled", "prometheus.*.enabled",
	// It separates more than the default does. What follows from the default depends on the nodes:
	// kubectl akri check reports it.
	"global.separateClusterServices",
	// A user namespace takes rights from Pods.
	"global.userNamespaces",
	// It restricts who reads metrics.
	"global.metrics.authorization",
	// The content of Configurations, which their author needs rights for.
	"*.configuration.createInstanceServices", "*.configuration.createConfigurationService",
	"*.configuration.shared", "*.configuration.mountCertificates", "*.configuration.discoveryDetails.*",
	"*.configuration.broker*.automountServiceAccountToken", "*.configuration.broker*.podSecurityContext.*",
	"*.configuration.broker*.securityContext", "*.configuration.broker*.env", "*.configuration.broker*.extraEnv",
	// Users and groups are not root while runAsNonRoot is set, and the kubelet has a list of
	// sysctls.
	"*.securityContext.runAs*", "*.podSecurityContext.runAs*", "*.podSecurityContext.*roup*", "*.podSecurityContext.sysctls",
	"*.securityContext.capabilities", // its lists are in weakening.yaml
	// Whether devices of debugEcho are shared between nodes.
	"handler-debug-echo.shared", "agent.debugEchoShared",
	// The handler discovers nothing on the Pod network.
	"handler-onvif.hostNetwork",
}

// containerSettings are the values that become flags, variables and the security context of a
// service.
var containerSettings = regexp.MustCompile(`\.(extraArgs|env|extraEnv|(podS|s)ecurityContext\.[^.]+)$`)

// TestValuesAreClassified checks that each boolean, and each value for the containers of a service,
// is known to weaken security or to be harmless. The schema has all values: others are errors.
func TestValuesAreClassified(t *testing.T) {
	booleans := valuePaths(t)
	require.NotEmpty(t, booleans)
	known := slices.Clone(harmless)
	for _, entry := range weakenings(t) {
		known = append(known, entry.Value)
		if entry.Upstream != "" {
			known = append(known, "*."+entry.Upstream)
		}
	}
	for name, kind := range booleans {
		if kind == "boolean" || containerSettings.MatchString(name) {
			require.True(t, slices.ContainsFunc(known, func(pattern string) bool { return standsFor(pattern, name) }),
				"%s: can it weaken security? If so, add it to files/weakening.yaml, otherwise to the harmless values of this test", name)
		}
	}
	for _, pattern := range known {
		require.NotEmpty(t, valuesOf(booleans, pattern), "%s: no such value", pattern)
	}
}

// standsFor reports whether a pattern of weakening.yaml stands for the value.
func standsFor(pattern, name string) bool {
	matched, err := path.Match(strings.ReplaceAll(pattern, ".", "/"), strings.ReplaceAll(name, ".", "/"))
	return err == nil && matched
}

func valuesOf(paths map[string]string, pattern string) []string {
	var names []string
	for name := range paths {
		if standsFor(pattern, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// valuePaths returns the types of all values in the schemas, by name.
func valuePaths(t *testing.T) map[string]string {
	t.Helper()
	paths := map[string]string{}
	add := func(prefix, file string) {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var schema map[string]any
		require.NoError(t, json.Unmarshal(text, &schema))
		definitions, _ := schema["$defs"].(map[string]any)
		addPaths(paths, prefix, schema, definitions)
	}
	add("", "akri/values.schema.json")
	for _, name := range dependencies(t) {
		if name != "akri-library" {
			add(name+".", path.Join("akri/charts", name, "values.schema.json"))
		}
	}
	return paths
}

func addPaths(paths map[string]string, prefix string, schema, definitions map[string]any) {
	if reference, found := schema["$ref"].(string); found {
		schema, _ = definitions[path.Base(reference)].(map[string]any)
	}
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		property := property.(map[string]any)
		kind, _ := property["type"].(string)
		paths[prefix+name] = kind
		addPaths(paths, prefix+name+".", property, definitions)
	}
}

func hostNetworkOf(t *testing.T, value string) bool {
	t.Helper()
	for _, handler := range sources(t).Handlers {
		if strings.HasPrefix(value, handler.Service+".") {
			return handler.HostNetwork
		}
	}
	return false
}

// allServices returns the arguments of helm that enable all services but the agent.
func allServices(t *testing.T) []string {
	t.Helper()
	return append(allHandlers(t), "--set", "console.enabled=true")
}

// weakened returns the data of the ConfigMap akri-weakening.
func weakened(t *testing.T, arguments ...string) map[string]string {
	t.Helper()
	rendered, err := render(t, append(arguments, "--show-only=templates/weakening.yaml")...)
	require.NoError(t, err)
	objects := decode[corev1.ConfigMap](t, rendered, "ConfigMap")
	require.Len(t, objects, 1)
	require.Equal(t, "akri-weakening", objects[0].Name)
	return objects[0].Data
}

func notes(t *testing.T, arguments ...string) string {
	t.Helper()
	output, err := run(t, "helm", append([]string{"install", "akri", "akri", "--namespace", "akri-system", "--dry-run=client"}, arguments...)...)
	require.NoError(t, err)
	_, text, found := strings.Cut(output, "\nNOTES:\n")
	require.True(t, found)
	return text
}
