// Package udev has the discoveryDetails of the Discovery Handler udev.
package udev

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"akri.sh/libs/details"
	"akri.sh/libs/details/udev/rules"
)

// DefaultPermissions has no m: the runtime creates the device nodes, and a container needs m only
// to create them again itself.
const DefaultPermissions = "rw"

var allowedPermissions = []string{"r", "w", "m", "rw", "rm", "rwm", "wm"}

// Details are the validated discoveryDetails.
type Details struct {
	// Rules select the devices that match one of them.
	Rules []rules.Rule
	// GroupRecursive offers a device and those below it as one.
	GroupRecursive bool
	// Permissions of containers on the device nodes.
	Permissions string
	// Properties are read from the devices that match, by name.
	Properties map[string]rules.Source
}

// document is the YAML of the details.
type document struct {
	UdevRules      []string          `yaml:"udevRules"`
	GroupRecursive bool              `yaml:"groupRecursive"`
	Permissions    string            `yaml:"permissions"`
	Properties     map[string]string `yaml:"properties"`
}

// Parse reads the discoveryDetails. The error lists all problems, with their position in a rule.
func Parse(text string) (Details, error) {
	parsed := document{Permissions: DefaultPermissions}
	if err := details.Decode(text, &parsed); err != nil {
		return Details{}, err
	}
	d := Details{GroupRecursive: parsed.GroupRecursive, Permissions: parsed.Permissions}
	var rulesErr, permissionsErr, propertiesErr error
	d.Rules, rulesErr = parseRules(parsed.UdevRules)
	if !slices.Contains(allowedPermissions, parsed.Permissions) {
		permissionsErr = fmt.Errorf("discoveryDetails: permissions: %q must be one of %s",
			parsed.Permissions, strings.Join(allowedPermissions, ", "))
	}
	d.Properties, propertiesErr = parseProperties(parsed.Properties)
	if err := errors.Join(rulesErr, permissionsErr, propertiesErr); err != nil {
		return Details{}, err
	}
	return d, nil
}

func parseRules(texts []string) ([]rules.Rule, error) {
	if texts == nil {
		return nil, errors.New("discoveryDetails: udevRules: required")
	}
	var parsed []rules.Rule
	var problems []error
	for i, text := range texts {
		rule, err := rules.Parse(text)
		if err != nil {
			problems = append(problems, fmt.Errorf("discoveryDetails: udevRules[%d] %q: %w", i, text, err))
		}
		parsed = append(parsed, rule)
	}
	return parsed, errors.Join(problems...)
}

// maxProperties leaves room for the properties that the handler sets itself.
const maxProperties = 32

var (
	propertyName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	reservedName = regexp.MustCompile(`^(UDEV|USB_RESOURCE|PCI_RESOURCE)_`)
)

func parseProperties(texts map[string]string) (map[string]rules.Source, error) {
	var problems []error
	if len(texts) > maxProperties {
		problems = append(problems, fmt.Errorf("discoveryDetails: properties: has %d entries, must have at most %d",
			len(texts), maxProperties))
	}
	sources := make(map[string]rules.Source, len(texts))
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		source, err := rules.ParseSource(texts[name])
		switch {
		case !propertyName.MatchString(name):
			err = errors.New("the name must have only letters, digits and '_', and not start with a digit")
		case reservedName.MatchString(name):
			err = errors.New("names that start with UDEV_, USB_RESOURCE_ or PCI_RESOURCE_ are reserved")
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("discoveryDetails: properties: %s: %q: %w", name, texts[name], err))
		}
		sources[name] = source
	}
	return sources, errors.Join(problems...)
}
