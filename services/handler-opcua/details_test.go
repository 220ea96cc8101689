package opcua_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	opcua "akri.sh/services/handler-opcua"
)

func FuzzDetails(f *testing.F) {
	for _, seed := range []string{
		ask("opc.tcp://a:1", "opc.tcp://[::1]:4840/b"), "opcuaDiscoveryMethod: {standard: {}}", ask("opc.tcp://a:0"),
		"applicationNames: {action: Exclude, items: [a]}\n" + ask("opc.tcp://a:1"), "opcuaDiscoveryMethod: {standard: {discoveryUrls: ~}}", "[",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, details string) {
		urls, err := opcua.URLs(details)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(urls), 256)
		for _, url := range urls {
			require.True(t, strings.HasPrefix(strings.ToLower(url), "opc.tcp://"), url)
		}
	})
}
