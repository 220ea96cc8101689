package discovery

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"akri.sh/libs/handler"
	"akri.sh/services/handler-udev/internal/rules"
)

// defaultPermissions has no m: the runtime creates the device nodes, and a container needs m only
// to create them again itself.
const defaultPermissions = "rw"

var allowedPermissions = []string{"r", "w", "m", "rw", "rm", "rwm", "wm"}

// Names of discoveryProperties.
const (
	resourceNameProperty = "devicePluginResourceName"
	vfioProperty         = "vfioPassthrough"
)

// Spec is the validated content of discoveryDetails and discoveryProperties.
type Spec struct {
	rules          []rules.Rule
	groupRecursive bool
	permissions    string
	resourceSuffix string // of the names of KubeVirt's variables; empty: no such variables
	vfio           bool
	properties     map[string]rules.Source // by name; read from the devices that match
}

type details struct {
	UdevRules      []string          `yaml:"udevRules"`
	GroupRecursive bool              `yaml:"groupRecursive"`
	Permissions    string            `yaml:"permissions"`
	Properties     map[string]string `yaml:"properties"`
}

// ParseSpec reads a request. The error lists all problems, with their position in a rule.
func ParseSpec(request handler.Request) (Spec, error) {
	parsed := details{Permissions: defaultPermissions}
	if err := handler.DecodeDetails(request, &parsed); err != nil {
		return Spec{}, err
	}
	spec := Spec{
		groupRecursive: parsed.GroupRecursive,
		permissions:    parsed.Permissions,
		resourceSuffix: variableSuffix(string(request.Properties[resourceNameProperty])),
		// Any value other than "true" is false, as in upstream Akri.
		vfio: strings.EqualFold(strings.TrimSpace(string(request.Properties[vfioProperty])), "true"),
	}
	var rulesErr, permissionsErr, propertiesErr error
	spec.rules, rulesErr = parseRules(parsed.UdevRules)
	if !slices.Contains(allowedPermissions, parsed.Permissions) {
		permissionsErr = fmt.Errorf("discoveryDetails: permissions: %q must be one of %s",
			parsed.Permissions, strings.Join(allowedPermissions, ", "))
	}
	spec.properties, propertiesErr = parseProperties(parsed.Properties)
	return spec, handler.Invalid(errors.Join(rulesErr, permissionsErr, propertiesErr))
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

// variableSuffix converts a resource name to the end of KubeVirt's variable names.
func variableSuffix(resource string) string {
	return strings.NewReplacer(".", "_", "/", "_").Replace(strings.ToUpper(strings.TrimSpace(resource)))
}
