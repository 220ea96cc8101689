package discovery

import (
	"strings"

	details "akri.sh/libs/details/udev"
	"akri.sh/libs/handler"
)

// Names of discoveryProperties.
const (
	resourceNameProperty = "devicePluginResourceName"
	vfioProperty         = "vfioPassthrough"
)

// Spec is the validated content of discoveryDetails and discoveryProperties.
type Spec struct {
	details.Details

	resourceSuffix string // of the names of KubeVirt's variables; empty: no such variables
	vfio           bool
}

// ParseSpec reads a request. The error lists all problems, with their position in a rule.
func ParseSpec(request handler.Request) (Spec, error) {
	parsed, err := details.Parse(request.Details)
	if err != nil {
		return Spec{}, handler.Invalid(err)
	}
	return Spec{
		Details:        parsed,
		resourceSuffix: variableSuffix(string(request.Properties[resourceNameProperty])),
		// Any value other than "true" is false, as in upstream Akri.
		vfio: strings.EqualFold(strings.TrimSpace(string(request.Properties[vfioProperty])), "true"),
	}, nil
}

// variableSuffix converts a resource name to the end of KubeVirt's variable names.
func variableSuffix(resource string) string {
	return strings.NewReplacer(".", "_", "/", "_").Replace(strings.ToUpper(strings.TrimSpace(resource)))
}
