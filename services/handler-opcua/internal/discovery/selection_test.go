package discovery_test

import (
	"strings"
	"testing"

	"github.com/gopcua/opcua/ua"
	"github.com/stretchr/testify/require"

	details "akri.sh/libs/details/opcua"
	"akri.sh/services/handler-opcua/internal/client"
	"akri.sh/services/handler-opcua/internal/discovery"
)

func TestURLOfServerThatAnnouncesItself(t *testing.T) {
	for name, test := range map[string]struct{ queried, announced, want string }{
		"host name with an address":               {"opc.tcp://192.168.0.1:50000/", "opc.tcp://known:50000/OPCUA/Simulation", "opc.tcp://known:50000/OPCUA/Simulation"},
		"IP address":                              {"opc.tcp://192.168.0.1:50000/", "opc.tcp://192.168.0.2:50000/OPCUA/Simulation", "opc.tcp://192.168.0.2:50000/OPCUA/Simulation"},
		"IPv6 address":                            {"opc.tcp://[fd00::1]:50000/", "opc.tcp://[fd00::2]:50000/a", "opc.tcp://[fd00::2]:50000/a"},
		"unknown host, queried without a path":    {"opc.tcp://192.168.0.1:50000/", "opc.tcp://OPCTest:50000/OPCUA/Simulation", "opc.tcp://192.168.0.1:50000/OPCUA/Simulation"},
		"unknown host, queried without a slash":   {"opc.tcp://192.168.0.1:50000", "opc.tcp://OPCTest:50000/OPCUA/Simulation", "opc.tcp://192.168.0.1:50000/OPCUA/Simulation"},
		"unknown host, queried with a path":       {"opc.tcp://192.168.0.1:50000/a/b", "opc.tcp://OPCTest:50000/OPCUA/Simulation", "opc.tcp://192.168.0.1:50000/a/b"},
		"unknown host, no paths":                  {"opc.tcp://192.168.0.1:50000", "opc.tcp://OPCTest:50000", "opc.tcp://192.168.0.1:50000"},
		"unknown host, slashes only":              {"opc.tcp://192.168.0.1:50000/", "opc.tcp://OPCTest:50000/", "opc.tcp://192.168.0.1:50000/"},
		"unknown host, gateway with another port": {"opc.tcp://gateway:50000/", "opc.tcp://OPCTest:4840/x", "opc.tcp://gateway:50000/x"},
		"unknown host, queried by IPv6 address":   {"opc.tcp://[fd00::1]:50000/", "opc.tcp://OPCTest:50000/x", "opc.tcp://[fd00::1]:50000/x"},
	} {
		t.Run(name, func(t *testing.T) {
			applications := map[string][]client.Application{test.queried: {{URLs: []string{test.announced}}}}
			servers := discovery.SelectServers(applications, details.Filter{}, resolves)
			require.Equal(t, []discovery.Server{{URL: test.want}}, servers)
		})
	}
}

func TestURLsOfDiscoveryServer(t *testing.T) {
	servers := discovery.SelectServers(map[string][]client.Application{"opc.tcp://10.0.0.5:4840/": {
		{Type: ua.ApplicationTypeDiscoveryServer, URLs: []string{"opc.tcp://OPCTest:4840/"}},
		{Name: "a", URLs: []string{"opc.tcp://OPCTest:4855/a"}},
		{Name: "b", URLs: []string{"opc.tcp://OPCTest:4866"}},
		{Name: "c", URLs: []string{"opc.tcp://known:4855/a"}},
		{Name: "d", URLs: []string{"opc.tcp://OPCTest"}},
	}}, details.Filter{}, resolves)
	require.Equal(t, []discovery.Server{
		{URL: "opc.tcp://10.0.0.5:4840", Name: "d"},
		{URL: "opc.tcp://10.0.0.5:4855/a", Name: "a"},
		{URL: "opc.tcp://10.0.0.5:4866", Name: "b"},
		{URL: "opc.tcp://known:4855/a", Name: "c"},
	}, servers)
}

func TestOnlyServersAreSelectedAndOnlyOnce(t *testing.T) {
	applications := map[string][]client.Application{
		"opc.tcp://10.0.0.1:4840/": {
			{Name: "server", Type: ua.ApplicationTypeServer, URI: "urn:1", URLs: []string{"http://known:80/x", "opc.tcp://known:1/"}},
			{Name: "lds", Type: ua.ApplicationTypeDiscoveryServer, URLs: []string{"opc.tcp://known:2/"}},
			{Name: "client", Type: ua.ApplicationTypeClient, URLs: []string{"opc.tcp://known:3/"}},
			{Name: "both", Type: ua.ApplicationTypeClientAndServer, URLs: []string{"opc.tcp://known:4/"}},
			{Name: "server", Type: ua.ApplicationTypeServer, URI: "urn:1", URLs: []string{"opc.tcp://known:1/"}},
			{Name: "https only", URLs: []string{"https://known:5/"}},
			{Name: "no URL at all"},
			{Name: "nonsense", URLs: []string{"opc.tcp://", "::", "opc.tcp://%zz:1/", "opc.tcp://" + strings.Repeat("x", 2000)}},
		},
		"opc.tcp://10.0.0.2:4840/": {{Name: "again", Type: ua.ApplicationTypeServer, URLs: []string{"opc.tcp://known:1/"}}},
	}
	require.Equal(t, []discovery.Server{
		{URL: "opc.tcp://known:1/", Name: "server", URI: "urn:1"}, {URL: "opc.tcp://known:4/", Name: "both"},
	}, discovery.SelectServers(applications, details.Filter{}, resolves))
	require.Equal(t, []string{"known"}, discovery.Hosts(applications))
}

func TestFilterByApplicationName(t *testing.T) {
	applications := map[string][]client.Application{"opc.tcp://known:1/": {
		{Name: "a", URLs: []string{"opc.tcp://known:1/"}}, {Name: "A", URLs: []string{"opc.tcp://known:2/"}},
	}}
	for name, test := range map[string]struct {
		filter details.Filter
		want   string
	}{
		"none":            {details.Filter{}, "aA"},
		"include":         {details.Filter{Include: true, Names: []string{"a"}}, "a"},
		"include nothing": {details.Filter{Include: true}, ""},
		"exclude":         {details.Filter{Names: []string{"a", "b"}}, "A"},
		"exclude nothing": {details.Filter{}, "aA"},
		"no substring":    {details.Filter{Include: true, Names: []string{"aA"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var names string
			for _, server := range discovery.SelectServers(applications, test.filter, resolves) {
				names += server.Name
			}
			require.Equal(t, test.want, names)
		})
	}
}

func FuzzSelectServers(f *testing.F) {
	f.Add("opc.tcp://10.0.0.1:4840/", "opc.tcp://OPCTest:4840/a", true)
	f.Add("opc.tcp://[::1]:4840", "opc.tcp://%41:0", false)
	f.Add("opc.tcp://a:1/%2f", "opc.tcp://b/../..", false)
	f.Fuzz(func(t *testing.T, queried, announced string, lds bool) {
		if _, err := details.ParseURL(queried); err != nil {
			return
		}
		applications := []client.Application{{URLs: []string{announced}}}
		if lds {
			applications = append(applications, client.Application{Type: ua.ApplicationTypeDiscoveryServer})
		}
		queriedApplications := map[string][]client.Application{queried: applications}
		for _, server := range discovery.SelectServers(queriedApplications, details.Filter{}, resolves) {
			require.True(t, strings.HasPrefix(strings.ToLower(server.URL), "opc.tcp://"), server.URL)
		}
	})
}

func resolves(_, host string) bool { return host != "OPCTest" && host != "" }
