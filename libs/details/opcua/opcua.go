// Package opcua has the discoveryDetails of the Discovery Handler opcua.
package opcua

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"

	"akri.sh/libs/details"
)

const (
	// Scheme is OPC UA over TCP, the only supported transport.
	Scheme = "opc.tcp"
	// defaultURL is the address of a discovery server on the same host.
	defaultURL = "opc.tcp://localhost:4840/"
	// maxURLs limits the URLs of one Configuration.
	maxURLs = 256
)

// Details are the validated discoveryDetails.
type Details struct {
	// URLs to query, sorted and distinct.
	URLs []string
	// Filter selects applications.
	Filter Filter
}

// Filter selects applications by their exact names: those in Names if Include is true, otherwise
// all others. The zero Filter selects all.
type Filter struct {
	Include bool
	Names   []string
}

// Selects returns whether the filter selects an application with the name.
func (f Filter) Selects(name string) bool { return slices.Contains(f.Names, name) == f.Include }

// document is the YAML of the details.
type document struct {
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

// Parse reads the discoveryDetails. The error lists all problems.
func Parse(text string) (Details, error) {
	var parsed document
	if err := details.Decode(text, &parsed); err != nil {
		return Details{}, err
	}
	urls, urlsErr := parsed.urls()
	filter, filterErr := parsed.filter()
	if err := errors.Join(urlsErr, filterErr); err != nil {
		return Details{}, fmt.Errorf("discoveryDetails: %w", err)
	}
	return Details{URLs: urls, Filter: filter}, nil
}

func (d document) urls() ([]string, error) {
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

func (d document) filter() (Filter, error) {
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

// ParseURL reads a discovery URL of a Configuration. It must have a port.
func ParseURL(text string) (*url.URL, error) {
	parsed, err := url.Parse(text)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%q must have the form opc.tcp://HOST:PORT[/PATH]: %w", text, errors.Unwrap(err))
	case parsed.Scheme != Scheme || parsed.Hostname() == "" || parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "":
		return nil, fmt.Errorf("%q must have the form opc.tcp://HOST:PORT[/PATH]", text)
	}
	if port, err := strconv.ParseUint(parsed.Port(), 10, 16); err != nil || port == 0 {
		return nil, fmt.Errorf("%q must have a port from 1 to 65535, such as opc.tcp://HOST:4840", text)
	}
	return parsed, nil
}
