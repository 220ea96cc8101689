package charts

import (
	"bytes"
	"errors"
	"fmt"
	"go/format"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

const (
	handlerList = subCharts + library + "/templates/_handlers.tpl"
	catalog     = "libs/catalog/handlers.go"
	detailsCode = "libs/details"
	validators  = detailsCode + "/validators/handlers.go"
)

// Handler is a Discovery Handler of this project: its declaration, services/<service>/handler.yaml,
// and what follows from the values of the charts. docs/handlers.md describes the keys of the
// declaration.
type Handler struct {
	Name    string     `json:"name"`
	Network *bool      `json:"network"`
	Agent   bool       `json:"agent"`
	Details string     `json:"details"`
	Allow   allow      `json:"allow"`
	Env     []variable `json:"env"`
	Mounts  []Mount    `json:"mounts"`

	// Service is the name of the handler's module, image and sub-chart, and of its component.
	Service string `json:"-"`
	// Value enables the handler. It is a value of upstream Akri's chart, if that has one.
	Value string `json:"-"`
	// Default is the default of Value.
	Default bool `json:"-"`
	// HostNetwork is whether the handler runs on the host network by default.
	HostNetwork bool `json:"-"`
}

// allow has the device classes and the beginnings of the names of properties that
// discovery-operator accepts from the handler.
type allow struct {
	DeviceClasses    []string `json:"deviceClasses"`
	PropertyPrefixes []string `json:"propertyPrefixes"`
}

type variable struct {
	Name       string `json:"name"`
	Value      string `json:"value,omitempty"`
	AgentValue string `json:"agentValue,omitempty"`
}

// Mount is a directory of the node or an emptyDir.
type Mount struct {
	Name          string `json:"name"`
	MountPath     string `json:"mountPath"`
	ReadOnly      bool   `json:"readOnly,omitempty"`
	HostPathValue string `json:"hostPathValue,omitempty"`
	EmptyDir      object `json:"emptyDir,omitempty"`

	// HostPath is the default of the value that HostPathValue names.
	HostPath string `json:"-"`
}

// id returns the name of the handler in global.agent.handlers.
func (h Handler) id() string { return strings.TrimPrefix(h.Service, "handler-") }

// Upstream returns whether upstream Akri's chart has values of the handler, at its name.
func (h Handler) Upstream() bool { return h.Value == h.Name+".discovery.enabled" }

// handlers reads the declarations.
func (s Sources) handlers() ([]Handler, error) {
	directories, err := filepath.Glob(filepath.Join(s.root, "services", "handler-*"))
	if err != nil {
		return nil, err
	}
	umbrellaValues := object{}
	if err := s.decode(umbrella+"/values.yaml", &umbrellaValues); err != nil {
		return nil, err
	}

	// The agent has environment variables of all handlers, in this order. An upgrade must not
	// change it.
	var enabled, disabled []Handler
	for _, directory := range slices.Backward(directories) {
		handler, err := s.handler(filepath.Base(directory), umbrellaValues)
		switch {
		case err != nil:
			return nil, err
		case handler.Default:
			enabled = append(enabled, handler)
		default:
			disabled = append(disabled, handler)
		}
	}
	return append(enabled, disabled...), nil
}

func (s Sources) handler(service string, umbrellaValues object) (Handler, error) {
	h, path := Handler{Service: service}, "services/"+service+"/handler.yaml"
	text, err := s.read(path)
	if err != nil {
		return h, err
	}
	if err := yaml.UnmarshalStrict(text, &h); err != nil {
		return h, fmt.Errorf("decode %s: %w", path, err)
	}

	var errs []error
	if h.Name == "" {
		errs = append(errs, fmt.Errorf("%s: name: required: the name with which the handler registers", path))
	}
	if h.Network == nil {
		errs = append(errs, fmt.Errorf("%s: network: required: true if the handler connects to devices, so that its NetworkPolicy allows it", path))
	}
	if h.Allow.DeviceClasses == nil || h.Allow.PropertyPrefixes == nil {
		errs = append(errs, fmt.Errorf("%s: allow: deviceClasses and propertyPrefixes: required: "+
			"what devices of the handler may have; [] allows nothing, [\"*\"] everything", path))
	}
	return h, errors.Join(append(errs, s.complete(&h, umbrellaValues))...)
}

// complete sets what follows from the values of the charts.
func (s Sources) complete(h *Handler, umbrellaValues object) error {
	path := subCharts + h.Service + "/values.yaml"
	values := object{}
	if err := s.decode(path, &values); err != nil {
		return err
	}
	h.HostNetwork, _ = values["hostNetwork"].(bool)
	for i, mount := range h.Mounts {
		path, found := lookup(values, mount.HostPathValue).(string)
		if !found && mount.EmptyDir == nil {
			return fmt.Errorf("%s: mount %s: needs the value %q or an emptyDir", h.Service, mount.Name, mount.HostPathValue)
		}
		h.Mounts[i].HostPath = path
	}

	h.Value = h.Name + ".discovery.enabled"
	enabled, found := lookup(umbrellaValues, h.Value).(bool)
	if !found {
		h.Value = h.Service + ".enabled"
		enabled, found = values["enabled"].(bool)
	}
	h.Default = enabled
	if !found {
		return fmt.Errorf("%s: enabled: required: whether the handler is enabled by default", path)
	}
	return nil
}

func lookup(values object, path string) any {
	var value any = values
	for key := range strings.SplitSeq(path, ".") {
		section, _ := value.(object)
		value = section[key]
	}
	return value
}

// noServices begins the condition of each dependency with a workload. A release with this value set
// to false has only Configurations.
const noServices = "services.enabled,"

// handlerDependencies returns the dependencies of the chart akri on the sub-charts of the handlers.
func (s Sources) handlerDependencies() string {
	var list strings.Builder
	for _, h := range s.Handlers {
		condition := noServices + h.Service + ".enabled"
		if h.Upstream() {
			condition += "," + h.Value
		}
		fmt.Fprintf(&list, "  - {name: %s, version: 0.1.0, condition: %q}\n", h.Service, condition)
	}
	return list.String()
}

const listTemplate = `{{/* Generated by make charts from handler.yaml of each handler: a list of

     name         Service, image and sub-chart without "handler-"; the name in global.agent.handlers.
     section      Upstream Akri's values of the handler, if any.
     default      Whether the handler is enabled by default.
     hostNetwork  Whether the handler requires the host network.
     network, env, mounts  As in handler.yaml. */}}
{{- define "akri.handlers" -}}
%s{{- end }}
`

// handlerTemplate returns the template akri.handlers.
func (s Sources) handlerTemplate() ([]byte, error) {
	var list []object
	for _, h := range s.Handlers {
		entry := object{"name": h.id(), "default": h.Default, "hostNetwork": h.HostNetwork, "network": h.Network}
		if h.Upstream() {
			entry["section"] = h.Name
		}
		if len(h.Env) > 0 {
			entry["env"] = h.Env
		}
		if len(h.Mounts) > 0 {
			entry["mounts"] = h.Mounts
		}
		list = append(list, entry)
	}
	text, err := yaml.Marshal(list)
	return fmt.Appendf(nil, listTemplate, text), err
}

const catalogIntroduction = `// Code generated by make generate from services/handler-*/handler.yaml. DO NOT EDIT.

package catalog

// Handlers are the Discovery Handlers of this project.
var Handlers = []Handler{
`

// catalog returns the handlers as Go code.
func (s Sources) catalog() ([]byte, error) {
	var code bytes.Buffer
	code.WriteString(catalogIntroduction)
	for _, h := range s.Handlers {
		fmt.Fprintf(&code, "{Name: %q, Component: %q, Value: %q, Default: %t,\n", h.Name, h.Service, h.Value, h.Default)
		fmt.Fprintf(&code, "Allow: Allow{DeviceClasses: %#v, PropertyPrefixes: %#v}},\n", h.Allow.DeviceClasses, h.Allow.PropertyPrefixes)
	}
	code.WriteString("}\n")
	return format.Source(code.Bytes())
}

const validatorsIntroduction = `// Code generated by make generate from services/handler-*/handler.yaml. DO NOT EDIT.

package validators

import (
%s)

// byHandler are the functions that parse the details of a handler, by its name.
var byHandler = map[string]func(text string) error{
%s}
`

// validators returns the validators of discoveryDetails as Go code.
func (s Sources) validators() ([]byte, error) {
	var imports, entries strings.Builder
	for _, h := range s.Handlers {
		if h.Details == "" {
			continue
		}
		fmt.Fprintf(&imports, "%q\n", "akri.sh/"+detailsCode+"/"+h.Details)
		fmt.Fprintf(&entries, "%q: errorOf(%s.Parse),\n", h.Name, h.Details)
	}
	return format.Source(fmt.Appendf(nil, validatorsIntroduction, imports.String(), entries.String()))
}
