// Package selection decides which of the kernel's devices a Configuration gets, and what a broker is told about each.
package selection

import (
	"errors"
	"fmt"
	"slices"
	"strings"

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
}

type details struct {
	UdevRules      []string `yaml:"udevRules"`
	GroupRecursive bool     `yaml:"groupRecursive"`
	Permissions    string   `yaml:"permissions"`
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
	// Anything that is not "true" is false, as it always was.
	spec.vfio = strings.EqualFold(strings.TrimSpace(string(request.Properties[vfioProperty])), "true")
	return spec, handler.Invalid(errors.Join(problems...))
}

// variable is the part of an environment variable's name that KubeVirt makes of a resource's name.
func variable(resource string) string {
	return strings.NewReplacer(".", "_", "/", "_").Replace(strings.ToUpper(strings.TrimSpace(resource)))
}

func (s Spec) matches(device rules.Device) bool {
	return slices.ContainsFunc(s.rules, func(rule rules.Rule) bool { return rule.Matches(device) })
}
