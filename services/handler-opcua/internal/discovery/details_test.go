package discovery_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/handler"
	"akri.sh/services/handler-opcua/internal/discovery"
)

// TestSample parses the Configuration in deploy/samples.
func TestSample(t *testing.T) {
	text, err := os.ReadFile("../../../../deploy/samples/opcua.yaml")
	require.NoError(t, err)
	_, details, _ := strings.Cut(string(text), "discoveryDetails: |\n")
	details, _, found := strings.Cut(details, "\n  capacity")
	require.True(t, found)
	spec, err := discovery.ParseDetails(handler.Request{Details: details})
	require.NoError(t, err)
	require.Equal(t, discovery.Spec{
		URLs: []string{"opc.tcp://192.0.2.10:4840/"}, Filter: discovery.Filter{Names: []string{"Simulator"}},
	}, spec)
}

func FuzzDetails(f *testing.F) {
	for _, seed := range []string{
		"opcuaDiscoveryMethod: {standard: {discoveryUrls: ['opc.tcp://a:1', 'opc.tcp://[::1]:4840/b']}}",
		"opcuaDiscoveryMethod: {standard: {}}",
		"opcuaDiscoveryMethod: {standard: {discoveryUrls: ['opc.tcp://a:0']}}",
		"applicationNames: {action: Exclude, items: [a]}\nopcuaDiscoveryMethod: {standard: {discoveryUrls: ['opc.tcp://a:1']}}",
		"opcuaDiscoveryMethod: {standard: {discoveryUrls: ~}}",
		"[",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, details string) {
		spec, err := discovery.ParseDetails(handler.Request{Details: details})
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(spec.URLs), 256)
		for _, url := range spec.URLs {
			require.True(t, strings.HasPrefix(strings.ToLower(url), "opc.tcp://"), url)
		}
	})
}
