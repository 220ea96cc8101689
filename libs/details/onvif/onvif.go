// Package onvif has the discoveryDetails of the Discovery Handler onvif.
package onvif

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"akri.sh/libs/details"
)

// Details are the discoveryDetails. A camera must match all filters.
type Details struct {
	IPAddresses  *Filter `yaml:"ipAddresses"`
	MACAddresses *Filter `yaml:"macAddresses"`
	Scopes       *Filter `yaml:"scopes"`
	UUIDs        *Filter `yaml:"uuids"`
	// DiscoveryTimeoutSeconds is the time for answers to the last initial probe.
	DiscoveryTimeoutSeconds *int `yaml:"discoveryTimeoutSeconds"`
	// Identity is the source of device ids: "url" (service URL and UUID, as in upstream Akri) or
	// "uuid", which does not change with the address.
	Identity string `yaml:"identity"`
	// DeviceInformation adds manufacturer, model, serial number and versions to the properties.
	DeviceInformation bool `yaml:"deviceInformation"`
}

// Filter includes or excludes cameras that have one of the items.
type Filter struct {
	Items  []string `yaml:"items"`
	Action string   `yaml:"action"`
}

const (
	include = "Include"
	exclude = "Exclude"

	identityURL  = "url"
	identityUUID = "uuid"

	defaultTimeout    = time.Second
	maxTimeoutSeconds = 600
)

// Parse reads the discoveryDetails. The error lists all problems.
func Parse(text string) (Details, error) {
	var d Details
	if err := details.Decode(text, &d); err != nil {
		return Details{}, err
	}
	if err := d.validate(); err != nil {
		return Details{}, fmt.Errorf("discoveryDetails: %w", err)
	}
	return d, nil
}

func (d Details) validate() error {
	problems := []error{
		d.IPAddresses.validate("ipAddresses"),
		d.MACAddresses.validate("macAddresses"),
		d.Scopes.validate("scopes"),
		d.UUIDs.validate("uuids"),
	}
	if t := d.DiscoveryTimeoutSeconds; t != nil && (*t < 0 || *t > maxTimeoutSeconds) {
		problems = append(problems, fmt.Errorf("discoveryTimeoutSeconds: %d: must be between 0 and %d", *t, maxTimeoutSeconds))
	}
	if !slices.Contains([]string{"", identityURL, identityUUID}, d.Identity) {
		problems = append(problems, fmt.Errorf("identity: %q: must be %q or %q", d.Identity, identityURL, identityUUID))
	}
	return errors.Join(problems...)
}

func (f *Filter) validate(name string) error {
	switch {
	case f == nil:
		return nil
	case f.Items == nil:
		return fmt.Errorf("%s: items: required", name)
	case !slices.Contains([]string{"", include, exclude}, f.Action):
		return fmt.Errorf("%s: action: %q: must be %q or %q", name, f.Action, include, exclude)
	}
	return nil
}

// Timeout is the time for answers to the last initial probe.
func (d Details) Timeout() time.Duration {
	if d.DiscoveryTimeoutSeconds == nil {
		return defaultTimeout
	}
	return time.Duration(*d.DiscoveryTimeoutSeconds) * time.Second
}

// DeviceID returns the device id of a camera.
func (d Details) DeviceID(url, uuid string) string {
	if d.Identity == identityUUID {
		return uuid
	}
	return url + "-" + uuid
}

// MatchesEndpoint applies the filters for data from WS-Discovery.
func (d Details) MatchesEndpoint(uuid string, scopes []string) bool {
	return d.UUIDs.matches(strings.EqualFold, uuid) &&
		d.Scopes.matches(func(a, b string) bool { return a == b }, scopes...)
}

// MatchesAddresses applies the filters for addresses. An empty address is unknown.
func (d Details) MatchesAddresses(ip, mac string) bool {
	return d.IPAddresses.matchesAddress(ip) && d.MACAddresses.matchesAddress(mac)
}

// Excludes reports whether the filter excludes cameras.
func (f *Filter) Excludes() bool { return f != nil && f.Action == exclude }

// matches reports whether one of the values is included or all are not excluded. Without a
// filter, all values match.
func (f *Filter) matches(equal func(a, b string) bool, values ...string) bool {
	if f == nil {
		return true
	}
	listed := slices.ContainsFunc(values, func(value string) bool {
		return slices.ContainsFunc(f.Items, func(item string) bool { return equal(item, value) })
	})
	return listed == !f.Excludes()
}

// matchesAddress is matches for one address. An unknown address matches only a filter that excludes
// nothing.
func (f *Filter) matchesAddress(address string) bool {
	if address == "" {
		return f == nil || f.Excludes() && len(f.Items) == 0
	}
	return f.matches(strings.EqualFold, address)
}
