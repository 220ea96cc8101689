package discovery

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gopcua/opcua/ua"

	details "akri.sh/libs/details/opcua"
	"akri.sh/services/handler-opcua/internal/client"
)

// Server is an OPC UA server that becomes a device.
type Server struct {
	// URL at which the server is reachable.
	URL string
	// URI and Name of the application.
	URI, Name string
}

// Hosts returns the hosts that SelectServers passes to mayAnnounce: names and addresses.
func Hosts(applications map[string][]client.Application) []string {
	hosts := map[string]struct{}{}
	for _, list := range applications {
		for _, application := range list {
			if announced, _, ok := firstURL(application.URLs); ok {
				hosts[announced.Hostname()] = struct{}{}
			}
		}
	}
	return slices.Sorted(maps.Keys(hosts))
}

// SelectServers returns the servers among the applications, sorted by URL and without duplicates.
// The map's keys are the URLs that returned the applications. mayAnnounce reports whether the host
// has an address that the queried server may announce.
func SelectServers(
	applications map[string][]client.Application, filter details.Filter, mayAnnounce func(queried, host string) bool,
) []Server {
	servers := map[string]Server{}
	for _, queried := range slices.Sorted(maps.Keys(applications)) {
		self := !slices.ContainsFunc(applications[queried], isDiscoveryServer)
		for _, application := range applications[queried] {
			announced, text, ok := firstURL(application.URLs)
			if !ok || !isServer(application) || !filter.Selects(application.Name) {
				continue
			}
			url := text
			if !mayAnnounce(queried, announced.Hostname()) {
				url = reachableURL(queried, announced, text, self)
			}
			if _, exists := servers[url]; !exists {
				servers[url] = Server{URL: url, URI: application.URI, Name: application.Name}
			}
		}
	}
	return slices.SortedFunc(maps.Values(servers), func(a, b Server) int { return cmp.Compare(a.URL, b.URL) })
}

func isServer(application client.Application) bool {
	return application.Type == ua.ApplicationTypeServer || application.Type == ua.ApplicationTypeClientAndServer
}

func isDiscoveryServer(application client.Application) bool {
	return application.Type == ua.ApplicationTypeDiscoveryServer
}
