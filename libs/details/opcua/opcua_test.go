package opcua_test

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/details/opcua"
)

// TestSample parses the Configuration in deploy/samples.
func TestSample(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/samples/opcua.yaml")
	require.NoError(t, err)
	_, details, _ := strings.Cut(string(text), "discoveryDetails: |\n")
	details, _, found := strings.Cut(details, "\n  capacity")
	require.True(t, found)
	spec, err := opcua.Parse(details)
	require.NoError(t, err)
	require.Equal(t, opcua.Details{
		URLs: []string{"opc.tcp://192.0.2.10:4840/"}, Filter: opcua.Filter{Names: []string{"Simulator"}},
	}, spec)
}

func FuzzParse(f *testing.F) {
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
	f.Fuzz(func(t *testing.T, text string) {
		spec, err := opcua.Parse(text)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(spec.URLs), 256)
		for _, url := range spec.URLs {
			require.True(t, strings.HasPrefix(strings.ToLower(url), "opc.tcp://"), url)
		}
	})
}

func TestParseURL(t *testing.T) {
	for _, good := range []string{"opc.tcp://localhost:4840/", "opc.tcp://10.0.0.1:4840", "opc.tcp://[::1]:4840/a/b"} {
		_, err := opcua.ParseURL(good)
		require.NoError(t, err)
	}
	for bad, message := range map[string]string{
		"tcp://127.0.0.1:4855/":     "opc.tcp://HOST",
		"127.0.0.1:4840":            "opc.tcp://HOST",
		"opc.tcp://127.0.0.1/":      "must have a port",
		"opc.tcp://127.0.0.1:0/":    "must have a port",
		"opc.tcp://127.0.0.1:99999": "must have a port",
		"opc.tcp://:4840/":          "opc.tcp://HOST",
		"opc.tcp://u:p@h:4840/":     "opc.tcp://HOST",
		"":                          "opc.tcp://HOST",
	} {
		_, err := opcua.ParseURL(bad)
		require.ErrorContains(t, err, message)
		require.ErrorContains(t, err, bad)
	}
}
