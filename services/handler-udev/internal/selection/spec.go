// Package selection decides which of the kernel's devices a Configuration gets, and what a broker is told about each.
package selection

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"akri.sh/libs/handler"
	"akri.sh/services/handler-udev/internal/rules"
)

const defaultPermissions = "rwm"

var allowedPermissions = []string{"r", "w", "m", "rw", "rm", "rwm", "wm"}

// Names of discoveryProperties.
const (
	resourceNameProperty = "devicePluginResourceName"
	vfioProperty         = "vfioPassthrough"
)

// Spec is what a Configuration asks for.
type Spec struct {
	rules          []rules.Rule
	groupRecursive bool
	permissions    string
	// resource is the end of the names of KubeVirt's variables; empty: none.
	resource string
	vfio     bool
	// properties are read from the devices that match, by name.
	properties map[string]rules.Source
}

type details struct {
	UdevRules      []string          `yaml:"udevRules"`
	GroupRecursive bool              `yaml:"groupRecursive"`
	Permissions    string            `yaml:"permissions"`
	Properties     map[string]string `yaml:"properties"`
}

// Parse reads a request. The error names every problem, with the position in a rule.
func Parse(request handler.Request) (Spec, error) {
	wanted := details{Permissions: defaultPermissions}
	if err := handler.DecodeDetails(request, &wanted); err != nil {
		return Spec{}, err
	}
	spec := Spec{
		groupRecursive: wanted.GroupRecursive,
		permissions:    wanted.Permissions,
		resource:       variable(string(request.Properties[resourceNameProperty])),
	}
	var problems []error
	if wanted.UdevRules == nil {
		problems = append(problems, errors.New("discoveryDetails: udevRules: required"))
	}
	for i, text := range wanted.UdevRules {
		rule, err := rules.Parse(text)
		if err != nil {
			problems = append(problems, fmt.Errorf("discoveryDetails: udevRules[%d] %q: %w", i, text, err))
		}
		spec.rules = append(spec.rules, rule)
	}
	if !slices.Contains(allowedPermissions, wanted.Permissions) {
		problems = append(problems, fmt.Errorf("discoveryDetails: permissions %q: want one of %s",
			wanted.Permissions, strings.Join(allowedPermissions, ", ")))
	}
	var err error
	if spec.properties, err = parseProperties(wanted.Properties); err != nil {
		problems = append(problems, err)
	}
	// Anything that is not "true" is false, as it always was.
	spec.vfio = strings.EqualFold(strings.TrimSpace(string(request.Properties[vfioProperty])), "true")
	return spec, handler.Invalid(errors.Join(problems...))
}

// maxProperties leaves room for those that this handler makes itself.
const maxProperties = 32

var (
	propertyName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	ownNames     = regexp.MustCompile(`^(UDEV|USB_RESOURCE|PCI_RESOURCE)_`)
)

func parseProperties(wanted map[string]string) (map[string]rules.Source, error) {
	var problems []error
	if len(wanted) > maxProperties {
		problems = append(problems, fmt.Errorf("discoveryDetails: properties: %d of them, at most %d are taken", len(wanted), maxProperties))
	}
	sources := make(map[string]rules.Source, len(wanted))
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		source, err := rules.ParseSource(wanted[name])
		switch {
		case !propertyName.MatchString(name):
			err = errors.New("want the name of an environment variable, of letters, digits and '_', the first not a digit")
		case ownNames.MatchString(name):
			err = errors.New("names that begin so are the handler's own")
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("discoveryDetails: properties: %s: %q: %w", name, wanted[name], err))
		}
		sources[name] = source
	}
	return sources, errors.Join(problems...)
}

// maxProperty is what a property may have, with its name.
const maxProperty = 4 << 10

// read returns the properties of a device that matches. What it does not have, and what cannot be in an environment, such
// as binary attributes, is left out.
func (s Spec) read(device rules.Device) map[string]string {
	values := make(map[string]string, len(s.properties))
	for name, source := range s.properties {
		value := source.Read(device)
		if value != "" && len(name)+len(value) <= maxProperty && isText(value) {
			values[name] = value
		}
	}
	return values
}

// isText dismisses control characters too: libudev ends a binary attribute at its first zero.
func isText(value string) bool {
	return utf8.ValidString(value) && !strings.ContainsFunc(value, func(r rune) bool { return unicode.IsControl(r) && r != '\t' && r != '\n' })
}

// variable is the part of an environment variable's name that KubeVirt makes of a resource's name.
func variable(resource string) string {
	return strings.NewReplacer(".", "_", "/", "_").Replace(strings.ToUpper(strings.TrimSpace(resource)))
}

func (s Spec) matches(device rules.Device) bool {
	return slices.ContainsFunc(s.rules, func(rule rules.Rule) bool { return rule.Matches(device) })
}
