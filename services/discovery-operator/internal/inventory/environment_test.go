package inventory_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	akriv0 "akri.sh/libs/apis/akri/v0"
	discoveryv0 "akri.sh/proto/v0"
	"akri.sh/services/discovery-operator/internal/inventory"
)

// fromHandler and fromConfiguration return whether containers get an environment variable.
func fromHandler(policy inventory.Policy, name, value string) bool {
	valid, _ := validate(policy, &discoveryv0.Device{Id: "x", Properties: map[string]string{name: value}})
	return len(valid) == 1
}

func fromConfiguration(t require.TestingT, policy inventory.Policy, name, value string) bool {
	input := newInput(source("/a", false, "x"))
	input.Policy = policy
	input.Configuration.Request.BrokerProperties = map[string]string{name: value, "RESOLUTION_WIDTH": "640"}
	entry := inventory.Build(input)
	require.Len(t, entry.Report.GetDevices(), 1, "the device stays")
	properties := entry.Report.GetDevices()[0].GetProperties()
	require.Equal(t, "640", properties["RESOLUTION_WIDTH"])
	require.Equal(t, "/a", properties["FROM"], "brokerProperties do not hide properties of the handler when they are refused")

	_, got := properties[name]
	if got {
		require.Empty(t, entry.Report.GetProblems())
		return true
	}
	require.Equal(t, []string{akriv0.ReasonInvalidDevice}, reasons(entry))
	require.Contains(t, entry.Report.GetProblems()[0].GetMessage(), fmt.Sprintf("spec.brokerProperties[%.100s]: ", name))
	return false
}

// Containers get a variable from one source if and only if they get it from the other one.
func TestSourcesOfTheEnvironmentAgree(t *testing.T) {
	dangerous := rapid.SampledFrom([]string{
		"LD_PRELOAD", "LD_AUDIT", "PATH", "HOME", "ENV", "BASH_ENV", "PROMPT_COMMAND", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS",
		"OPENJ9_JAVA_OPTIONS", "DOTNET_STARTUP_HOOKS", "CORECLR_PROFILER_PATH", "ASPNETCORE_HOSTINGSTARTUPASSEMBLIES", "NODE_OPTIONS",
		"NODE_EXTRA_CA_CERTS", "OPENSSL_CONF", "GIT_SSH_COMMAND", "PYTHONSTARTUP", "PERL5OPT", "RUBYOPT", "DYLD_INSERT_LIBRARIES", "GCONV_PATH",
		"http_proxy", "NO_PROXY", "LUA_INIT_5_4", "PS0", "LESSOPEN", "SSLKEYLOGFILE", "NPM_CONFIG_REGISTRY", "Ld_Preload",
	})
	anyName := rapid.OneOf(dangerous, rapid.String(), rapid.StringMatching(`[A-Z_]{1,6}(LD_|PATH|ENV|PROXY|=)[A-Z]{0,3}`),
		rapid.Map(dangerous, func(name string) string { return name + "=/x" }), rapid.Map(dangerous, func(name string) string { return "X_" + name }))
	rapid.Check(t, func(t *rapid.T) {
		name, value := anyName.Draw(t, "name"), rapid.SampledFrom([]string{"", "/x", "a\x00PATH=/x"}).Draw(t, "value")
		policy := inventory.Policy{MaxDevices: 1, AllowProperties: rapid.SliceOf(dangerous).Draw(t, "allowed")}
		got := fromConfiguration(t, policy, name, value)
		require.Equal(t, fromHandler(policy, name, value), got)
		if got {
			require.False(t, strings.ContainsAny(name+value, "=\x00"), "%q is another variable", name)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		require.False(t, fromConfiguration(t, inventory.Policy{MaxDevices: 1}, dangerous.Draw(t, "name"), "x"))
	})
}
