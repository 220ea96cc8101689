package servers

import (
	"cmp"
	"maps"
	"slices"
)

// Type is what an application does; only those that serve are devices.
type Type int

// The types of an application.
const (
	Server Type = iota
	Client
	ClientServer
	DiscoveryServer
)

// Application is what a server says of itself or of another.
type Application struct {
	URI  string
	Name string
	Type Type
	URLs []string
}

// Found is a server that a client can use.
type Found struct {
	URL  string
	URI  string // of the application
	Name string // of the application
}

// Action says what a Filter does with the names that it lists.
type Action int

// The actions of a Filter; None lets everything pass.
const (
	None Action = iota
	Include
	Exclude
)

// Filter chooses applications by their exact names.
type Filter struct {
	Action Action
	Names  []string
}

func (f Filter) passes(name string) bool {
	switch f.Action {
	case Include:
		return slices.Contains(f.Names, name)
	case Exclude:
		return !slices.Contains(f.Names, name)
	default:
		return true
	}
}

// Hosts are the host names that must be looked up before Choose.
func Hosts(answers map[string][]Application) []string {
	hosts := map[string]struct{}{}
	for _, applications := range answers {
		for _, application := range applications {
			if announced, _, ok := pick(application.URLs); ok {
				hosts[announced.Hostname()] = struct{}{}
			}
		}
	}
	return slices.Sorted(maps.Keys(hosts))
}

// Choose returns the servers among what was answered at each URL, each once, by URL. resolves tells whether a host name
// has an address.
func Choose(answers map[string][]Application, filter Filter, resolves func(host string) bool) []Found {
	found := map[string]Found{}
	for _, asked := range slices.Sorted(maps.Keys(answers)) {
		own := !slices.ContainsFunc(answers[asked], func(a Application) bool { return a.Type == DiscoveryServer })
		for _, application := range answers[asked] {
			announced, text, reachable := pick(application.URLs)
			if !reachable || !isServer(application.Type) || !filter.passes(application.Name) {
				continue
			}
			at := reach(asked, announced, text, own, resolves(announced.Hostname()))
			if _, known := found[at]; !known {
				found[at] = Found{URL: at, URI: application.URI, Name: application.Name}
			}
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Found) int { return cmp.Compare(a.URL, b.URL) })
}

func isServer(t Type) bool { return t == Server || t == ClientServer }
