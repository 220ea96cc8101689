package discovery

import (
	"errors"
	"fmt"
	"slices"

	"akri.sh/libs/handler"
)

const (
	// defaultURL is the address of a discovery server on the same host.
	defaultURL = "opc.tcp://localhost:4840/"
	// maxURLs limits the URLs of one Configuration.
	maxURLs = 256
)

// Spec is the validated content of discoveryDetails.
type Spec struct {
	URLs   []string
	Filter Filter
}

type details struct {
	Method *struct {
		Standard *struct {
			DiscoveryURLs []string `yaml:"discoveryUrls"`
		} `yaml:"standard"`
	} `yaml:"opcuaDiscoveryMethod"`
	ApplicationNames *struct {
		Items  []string `yaml:"items"`
		Action string   `yaml:"action"`
	} `yaml:"applicationNames"`
}

// ParseDetails reads the discoveryDetails of a request. The error lists all problems.
func ParseDetails(request handler.Request) (Spec, error) {
	var parsed details
	if err := handler.DecodeDetails(request, &parsed); err != nil {
		return Spec{}, err
	}
	urls, urlsErr := parsed.urls()
	filter, filterErr := parsed.filter()
	if err := errors.Join(urlsErr, filterErr); err != nil {
		return Spec{}, handler.Invalid(fmt.Errorf("discoveryDetails: %w", err))
	}
	return Spec{URLs: urls, Filter: filter}, nil
}

func (d details) urls() ([]string, error) {
	switch {
	case d.Method == nil:
		return nil, errors.New(`opcuaDiscoveryMethod: required; the only method is "standard: {}"`)
	case d.Method.Standard == nil:
		return nil, errors.New("opcuaDiscoveryMethod: standard: required")
	case d.Method.Standard.DiscoveryURLs == nil:
		return []string{defaultURL}, nil
	}
	urls := d.Method.Standard.DiscoveryURLs
	var problems []error
	if len(urls) > maxURLs {
		problems = append(problems, fmt.Errorf("discoveryUrls: has %d URLs, must have at most %d", len(urls), maxURLs))
	}
	for i, url := range urls {
		if _, err := ParseURL(url); err != nil {
			problems = append(problems, fmt.Errorf("discoveryUrls[%d]: %w", i, err))
		}
	}
	slices.Sort(urls)
	return slices.Compact(urls), errors.Join(problems...)
}

func (d details) filter() (Filter, error) {
	if d.ApplicationNames == nil {
		return Filter{}, nil
	}
	var problems []error
	if d.ApplicationNames.Items == nil {
		problems = append(problems, errors.New("applicationNames: items: required"))
	}
	action := d.ApplicationNames.Action
	if !slices.Contains([]string{"", "Include", "Exclude"}, action) {
		problems = append(problems, fmt.Errorf("applicationNames: action: %q must be Include or Exclude", action))
	}
	return Filter{Include: action != "Exclude", Names: d.ApplicationNames.Items}, errors.Join(problems...)
}
