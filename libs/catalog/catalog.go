// Package catalog lists the Discovery Handlers of this project, so that messages can name the chart
// value that enables one. Handlers of others are not in the list and need not be.
package catalog

import "slices"

// Handler is a Discovery Handler of this project.
type Handler struct {
	// Name is the name with which the handler registers, as in Configurations.
	Name string
	// Component is the value of the label app.kubernetes.io/component of its Pods, and the name of
	// its sub-chart.
	Component string
	// Value is the value of the chart akri that enables the handler.
	Value string
	// Default is the default of Value.
	Default bool
	// Allow is what its devices may have, unless a setting of discovery-operator differs.
	Allow Allow
}

// Everything is the item of a list of an Allow that allows everything.
const Everything = "*"

// Allow is the allow list of a handler. A list that is nil allows everything.
type Allow struct {
	// DeviceClasses are the classes of its device nodes, see discovery-operator's README.
	DeviceClasses []string `json:"deviceClasses"`
	// PropertyPrefixes are the beginnings of the names of its properties. A Configuration allows
	// further names by naming them in its discoveryDetails.
	PropertyPrefixes []string `json:"propertyPrefixes"`
}

// Find returns the handler with the name. It returns false for handlers of others.
func Find(name string) (Handler, bool) {
	i := slices.IndexFunc(Handlers, func(h Handler) bool { return h.Name == name })
	if i < 0 {
		return Handler{}, false
	}
	return Handlers[i], true
}
