package opcua

import (
	"errors"
	"fmt"
	"slices"

	"akri.sh/libs/handler"
	"akri.sh/services/handler-opcua/internal/servers"
)

const (
	// defaultURL is where a discovery server on the same host listens.
	defaultURL = "opc.tcp://localhost:4840/"
	// maxURLs bounds what one Configuration makes the handler do.
	maxURLs = 256
)

// wanted is what a Configuration asks for.
type wanted struct {
	urls   []string
	filter servers.Filter
}

type details struct {
	Method *struct {
		Standard *struct {
			DiscoveryURLs *[]string `yaml:"discoveryUrls"`
		} `yaml:"standard"`
	} `yaml:"opcuaDiscoveryMethod"`
	ApplicationNames *struct {
		Items  *[]string `yaml:"items"`
		Action string    `yaml:"action"`
	} `yaml:"applicationNames"`
}

// parse reads the details; all that is wrong with them is said at once.
func parse(request handler.Request) (wanted, error) {
	given := details{}
	if err := handler.DecodeDetails(request, &given); err != nil {
		return wanted{}, err
	}
	urls, urlsErr := given.urls()
	filter, filterErr := given.filter()
	if err := errors.Join(urlsErr, filterErr); err != nil {
		return wanted{}, handler.Invalid(fmt.Errorf("discoveryDetails: %w", err))
	}
	return wanted{urls: urls, filter: filter}, nil
}

func (d details) urls() ([]string, error) {
	switch {
	case d.Method == nil:
		return nil, errors.New(`opcuaDiscoveryMethod: required; "standard: {}" is the only method`)
	case d.Method.Standard == nil:
		return nil, errors.New("opcuaDiscoveryMethod: standard: required")
	case d.Method.Standard.DiscoveryURLs == nil:
		return []string{defaultURL}, nil
	}
	urls := *d.Method.Standard.DiscoveryURLs
	var problems []error
	if len(urls) > maxURLs {
		problems = append(problems, fmt.Errorf("discoveryUrls: %d of them, at most %d are taken", len(urls), maxURLs))
	}
	for i, url := range urls {
		if _, err := servers.ParseURL(url); err != nil {
			problems = append(problems, fmt.Errorf("discoveryUrls[%d]: %w", i, err))
		}
	}
	slices.Sort(urls)
	return slices.Compact(urls), errors.Join(problems...)
}

func (d details) filter() (servers.Filter, error) {
	if d.ApplicationNames == nil {
		return servers.Filter{}, nil
	}
	var problems []error
	if d.ApplicationNames.Items == nil {
		problems = append(problems, errors.New("applicationNames: items: required"))
		d.ApplicationNames.Items = &[]string{}
	}
	filter := servers.Filter{Names: *d.ApplicationNames.Items}
	switch action := d.ApplicationNames.Action; action {
	case "", "Include":
		filter.Action = servers.Include
	case "Exclude":
		filter.Action = servers.Exclude
	default:
		problems = append(problems, fmt.Errorf("applicationNames: action: %q is neither Include nor Exclude", action))
	}
	return filter, errors.Join(problems...)
}
