// Package selection is what a Configuration's discoveryDetails ask for.
package selection

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Details of a Configuration. Cameras must pass every filter.
type Details struct {
	IPAddresses  *Filter `yaml:"ipAddresses"`
	MACAddresses *Filter `yaml:"macAddresses"`
	Scopes       *Filter `yaml:"scopes"`
	UUIDs        *Filter `yaml:"uuids"`
	// DiscoveryTimeoutSeconds is how long answers to the last of the first probes may take.
	DiscoveryTimeoutSeconds *int `yaml:"discoveryTimeoutSeconds"`
	// Identity is what makes a device id: "url" (address and UUID, as Akri does) or "uuid", which survives a change of
	// address.
	Identity string `yaml:"identity"`
	// DeviceInformation asks cameras for manufacturer, model, serial number and versions too.
	DeviceInformation bool `yaml:"deviceInformation"`
}

// Filter is a list of values and what to do with those who have them.
type Filter struct {
	Items  []string `yaml:"items"`
	Action string   `yaml:"action"`
}

const (
	include = "Include"
	exclude = "Exclude"

	identityURL  = "url"
	identityUUID = "uuid"

	defaultTimeout = 1
	maxTimeout     = 600
)

// Validate tells all that is wrong.
func (d Details) Validate() error {
	var problems []error
	for name, filter := range map[string]*Filter{"ipAddresses": d.IPAddresses, "macAddresses": d.MACAddresses, "scopes": d.Scopes, "uuids": d.UUIDs} {
		if err := filter.validate(); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", name, err))
		}
	}
	slices.SortFunc(problems, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	if t := d.DiscoveryTimeoutSeconds; t != nil && (*t < 0 || *t > maxTimeout) {
		problems = append(problems, fmt.Errorf("discoveryTimeoutSeconds: %d: want 0 to %d", *t, maxTimeout))
	}
	if !slices.Contains([]string{"", identityURL, identityUUID}, d.Identity) {
		problems = append(problems, fmt.Errorf("identity: %q: want %s or %s", d.Identity, identityURL, identityUUID))
	}
	return errors.Join(problems...)
}

func (f *Filter) validate() error {
	switch {
	case f == nil:
		return nil
	case f.Items == nil:
		return errors.New("items: required")
	case !slices.Contains([]string{"", include, exclude}, f.Action):
		return fmt.Errorf("action: %q: want %s or %s", f.Action, include, exclude)
	}
	return nil
}

// Timeout is how long to wait for answers.
func (d Details) Timeout() time.Duration {
	if d.DiscoveryTimeoutSeconds == nil {
		return defaultTimeout * time.Second
	}
	return time.Duration(*d.DiscoveryTimeoutSeconds) * time.Second
}

// ID of a camera's device.
func (d Details) ID(url, uuid string) string {
	if d.Identity == identityUUID {
		return uuid
	}
	return url + "-" + uuid
}

// Wants tells whether a camera passes the filters that need no question to it.
func (d Details) Wants(uuid string, scopes []string) bool {
	return d.UUIDs.passes(strings.EqualFold, uuid) && d.Scopes.passes(func(a, b string) bool { return a == b }, scopes...)
}

// WantsAt tells whether a camera of these addresses passes; an empty one is not known.
func (d Details) WantsAt(ip, mac string) bool {
	return d.IPAddresses.passesKnown(ip) && d.MACAddresses.passesKnown(mac)
}

// passes: without a filter everything does; Include wants a value among its items, Exclude wants none.
func (f *Filter) passes(equal func(a, b string) bool, values ...string) bool {
	if f == nil {
		return true
	}
	found := slices.ContainsFunc(values, func(value string) bool {
		return slices.ContainsFunc(f.Items, func(item string) bool { return equal(item, value) })
	})
	return found == (f.Action != exclude)
}

// passesKnown: a value that nobody knows passes only what lets everything pass.
func (f *Filter) passesKnown(value string) bool {
	if value == "" {
		return f == nil || f.Action == exclude && len(f.Items) == 0
	}
	return f.passes(strings.EqualFold, value)
}
