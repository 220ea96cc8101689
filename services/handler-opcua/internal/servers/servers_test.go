package servers_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/services/handler-opcua/internal/servers"
)

func TestTheURLOfAServerThatAnnouncesItself(t *testing.T) {
	for name, test := range map[string]struct{ asked, announced, want string }{
		"its name is known":                            {"opc.tcp://192.168.0.1:50000/", "opc.tcp://known:50000/OPCUA/Simulation", "opc.tcp://known:50000/OPCUA/Simulation"},
		"an address":                                   {"opc.tcp://192.168.0.1:50000/", "opc.tcp://192.168.0.2:50000/OPCUA/Simulation", "opc.tcp://192.168.0.2:50000/OPCUA/Simulation"},
		"an IPv6 address":                              {"opc.tcp://[fd00::1]:50000/", "opc.tcp://[fd00::2]:50000/a", "opc.tcp://[fd00::2]:50000/a"},
		"unknown name, asked without a path":           {"opc.tcp://192.168.0.1:50000/", "opc.tcp://OPCTest:50000/OPCUA/Simulation", "opc.tcp://192.168.0.1:50000/OPCUA/Simulation"},
		"unknown name, asked without even a slash":     {"opc.tcp://192.168.0.1:50000", "opc.tcp://OPCTest:50000/OPCUA/Simulation", "opc.tcp://192.168.0.1:50000/OPCUA/Simulation"},
		"unknown name, asked with a path":              {"opc.tcp://192.168.0.1:50000/a/b", "opc.tcp://OPCTest:50000/OPCUA/Simulation", "opc.tcp://192.168.0.1:50000/a/b"},
		"unknown name, no path anywhere":               {"opc.tcp://192.168.0.1:50000", "opc.tcp://OPCTest:50000", "opc.tcp://192.168.0.1:50000"},
		"unknown name, slashes only":                   {"opc.tcp://192.168.0.1:50000/", "opc.tcp://OPCTest:50000/", "opc.tcp://192.168.0.1:50000/"},
		"unknown name, through a gateway's other port": {"opc.tcp://gateway:50000/", "opc.tcp://OPCTest:4840/x", "opc.tcp://gateway:50000/x"},
		"unknown name, asked by IPv6":                  {"opc.tcp://[fd00::1]:50000/", "opc.tcp://OPCTest:50000/x", "opc.tcp://[fd00::1]:50000/x"},
	} {
		t.Run(name, func(t *testing.T) {
			found := servers.Choose(map[string][]servers.Application{test.asked: {{URLs: []string{test.announced}}}}, servers.Filter{}, resolves)
			require.Equal(t, []servers.Found{{URL: test.want}}, found)
		})
	}
}

func TestADiscoveryServerAnnouncesServersOnOtherPorts(t *testing.T) {
	found := servers.Choose(map[string][]servers.Application{"opc.tcp://10.0.0.5:4840/": {
		{Type: servers.DiscoveryServer, URLs: []string{"opc.tcp://OPCTest:4840/"}},
		{Name: "a", URLs: []string{"opc.tcp://OPCTest:4855/a"}},
		{Name: "b", URLs: []string{"opc.tcp://OPCTest:4866"}},
		{Name: "c", URLs: []string{"opc.tcp://known:4855/a"}},
		{Name: "d", URLs: []string{"opc.tcp://OPCTest"}},
	}}, servers.Filter{}, resolves)
	require.Equal(t, []servers.Found{
		{URL: "opc.tcp://10.0.0.5:4840", Name: "d"},
		{URL: "opc.tcp://10.0.0.5:4855/a", Name: "a"},
		{URL: "opc.tcp://10.0.0.5:4866", Name: "b"},
		{URL: "opc.tcp://known:4855/a", Name: "c"},
	}, found)
}

func TestOnlyServersAreDevicesAndEachIsOne(t *testing.T) {
	answers := map[string][]servers.Application{
		"opc.tcp://10.0.0.1:4840/": {
			{Name: "server", Type: servers.Server, URI: "urn:1", URLs: []string{"http://known:80/x", "opc.tcp://known:1/"}},
			{Name: "lds", Type: servers.DiscoveryServer, URLs: []string{"opc.tcp://known:2/"}},
			{Name: "client", Type: servers.Client, URLs: []string{"opc.tcp://known:3/"}},
			{Name: "both", Type: servers.ClientServer, URLs: []string{"opc.tcp://known:4/"}},
			{Name: "server", Type: servers.Server, URI: "urn:1", URLs: []string{"opc.tcp://known:1/"}},
			{Name: "https only", URLs: []string{"https://known:5/"}},
			{Name: "no URL at all"},
			{Name: "nonsense", URLs: []string{"opc.tcp://", "::", "opc.tcp://%zz:1/", "opc.tcp://" + strings.Repeat("x", 2000)}},
		},
		"opc.tcp://10.0.0.2:4840/": {{Name: "again", Type: servers.Server, URLs: []string{"opc.tcp://known:1/"}}},
	}
	require.Equal(t, []servers.Found{
		{URL: "opc.tcp://known:1/", Name: "server", URI: "urn:1"}, {URL: "opc.tcp://known:4/", Name: "both"},
	}, servers.Choose(answers, servers.Filter{}, resolves))
	require.Equal(t, []string{"known"}, servers.Hosts(answers))
}

func TestFilterByApplicationName(t *testing.T) {
	answers := map[string][]servers.Application{"opc.tcp://known:1/": {
		{Name: "a", URLs: []string{"opc.tcp://known:1/"}}, {Name: "A", URLs: []string{"opc.tcp://known:2/"}},
	}}
	for name, test := range map[string]struct {
		filter servers.Filter
		want   string
	}{
		"none":             {servers.Filter{}, "aA"},
		"include":          {servers.Filter{Action: servers.Include, Names: []string{"a"}}, "a"},
		"include nothing":  {servers.Filter{Action: servers.Include}, ""},
		"exclude":          {servers.Filter{Action: servers.Exclude, Names: []string{"a", "b"}}, "A"},
		"exclude nothing":  {servers.Filter{Action: servers.Exclude}, "aA"},
		"not a part of it": {servers.Filter{Action: servers.Include, Names: []string{"aA"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var names string
			for _, found := range servers.Choose(answers, test.filter, resolves) {
				names += found.Name
			}
			require.Equal(t, test.want, names)
		})
	}
}

func TestConfiguredURLsAreChecked(t *testing.T) {
	for _, good := range []string{"opc.tcp://localhost:4840/", "opc.tcp://10.0.0.1:4840", "opc.tcp://[::1]:4840/a/b"} {
		_, err := servers.ParseURL(good)
		require.NoError(t, err)
	}
	for bad, message := range map[string]string{
		"tcp://127.0.0.1:4855/":     "opc.tcp://HOST",
		"127.0.0.1:4840":            "opc.tcp://HOST",
		"opc.tcp://127.0.0.1/":      "a port",
		"opc.tcp://127.0.0.1:0/":    "a port",
		"opc.tcp://127.0.0.1:99999": "a port",
		"opc.tcp://:4840/":          "opc.tcp://HOST",
		"opc.tcp://u:p@h:4840/":     "opc.tcp://HOST",
		"":                          "opc.tcp://HOST",
	} {
		_, err := servers.ParseURL(bad)
		require.ErrorContains(t, err, message)
		require.ErrorContains(t, err, bad)
	}
}

func FuzzChoose(f *testing.F) {
	f.Add("opc.tcp://10.0.0.1:4840/", "opc.tcp://OPCTest:4840/a", true)
	f.Add("opc.tcp://[::1]:4840", "opc.tcp://%41:0", false)
	f.Add("opc.tcp://a:1/%2f", "opc.tcp://b/../..", false)
	f.Fuzz(func(t *testing.T, asked, announced string, lds bool) {
		if _, err := servers.ParseURL(asked); err != nil {
			return
		}
		applications := []servers.Application{{URLs: []string{announced}}}
		if lds {
			applications = append(applications, servers.Application{Type: servers.DiscoveryServer})
		}
		for _, found := range servers.Choose(map[string][]servers.Application{asked: applications}, servers.Filter{}, resolves) {
			require.True(t, strings.HasPrefix(strings.ToLower(found.URL), "opc.tcp://"), found.URL)
		}
	})
}

func resolves(host string) bool { return host != "OPCTest" && host != "" }
