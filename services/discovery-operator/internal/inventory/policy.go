package inventory

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/catalog"
	discoveryv0 "akri.sh/proto/v0"
)

// Policy lists the exceptions to what devices must not request. Any process that can register as a
// handler decides what containers get.
type Policy struct {
	// MaxDevices is the number of devices of one endpoint for one Configuration.
	MaxDevices int
	// AllowHostPaths are paths that devices may use, with all paths below them: mounts, and device
	// nodes that are refused otherwise.
	AllowHostPaths []string
	// AllowProperties are names of environment variables that may be set.
	AllowProperties []string
	// AllowFromHandlers restricts what the handlers of a name may send. It allows nothing that is
	// refused otherwise.
	AllowFromHandlers AllowLists
}

// checkProperty decides about the environment variables of all sources: containers get them by
// device plugins, CDI and brokers alike.
func (p Policy) checkProperty(name, value string) error {
	return akriv0.ValidateEnvironment(name, value, p.AllowProperties)
}

// checkMount allows only what the settings allow: any other directory or file may belong to the
// node or to another workload.
func (p Policy) checkMount(host string) error {
	if p.allows(host) {
		return nil
	}
	return notAllowed("mount", host, "")
}

// checkDeviceNode allows paths of device nodes. CheckDeviceNodes examines what they are.
func (p Policy) checkDeviceNode(host string) error {
	if p.allows(host) || strings.HasPrefix(path.Clean(host), "/dev/") {
		return nil
	}
	return notAllowed("device node", host, "which is not below /dev")
}

// allows resolves `..` and the usual link /var/run. The container runtime follows other links: an
// allowed directory must be one that only trusted users write to.
func (p Policy) allows(host string) bool {
	return slices.ContainsFunc(p.AllowHostPaths, func(tree string) bool { return contains(cleanPath(tree), cleanPath(host)) })
}

func cleanPath(host string) string {
	clean := path.Clean(host)
	if contains("/var/run", clean) {
		return strings.TrimPrefix(clean, "/var")
	}
	return clean
}

func notAllowed(kind, host, reason string) error {
	if reason != "" {
		reason = ", " + reason
	}
	return fmt.Errorf("%s of host path %.100q%s; if containers may use it, allow it with --allow-host-paths "+
		"(chart value global.allowHostPaths)", kind, host, reason)
}

// contains returns whether the tree contains the file.
func contains(tree, file string) bool {
	return file == tree || strings.HasPrefix(file, strings.TrimSuffix(tree, "/")+"/")
}

// DeviceNodes are the device nodes of the kernel at one time.
type DeviceNodes interface {
	// Check returns why a device node must not be offered. The error follows the path in a
	// sentence.
	Check(path string) error
	// Class returns the class of a device node. The error follows the path in a sentence.
	Class(path string) (string, error)
	// IsDisk returns whether the result of Check depends on how the node uses its disks.
	IsDisk(path string) bool
}

// HaveDeviceNodes returns whether a device has a device node.
func HaveDeviceNodes(sources []Source) bool {
	return slices.ContainsFunc(sources, func(s Source) bool {
		return slices.ContainsFunc(s.Devices, func(d *discoveryv0.Device) bool { return len(d.GetDeviceSpecs()) > 0 })
	})
}

// CheckDeviceNodes moves devices with device nodes that must not be offered to the problems of
// their source. It returns whether a device is a disk: the node may begin or end to use it at any
// time.
func (p Policy) CheckDeviceNodes(sources []Source, nodes DeviceNodes) (disks bool) {
	for i, source := range sources {
		var refused []string
		usable := make([]*discoveryv0.Device, 0, len(source.Devices))
		for _, device := range source.Devices {
			disks = disks || slices.ContainsFunc(device.GetDeviceSpecs(), func(s *discoveryv0.DeviceSpec) bool { return nodes.IsDisk(hostPath(s)) })
			if err := p.checkNodes(source.Handler.GetName(), device, nodes); err != nil {
				refused = append(refused, fmt.Sprintf("device %.100q with %v", device.GetId(), err))
				continue
			}
			usable = append(usable, device)
		}
		if len(refused) > 0 {
			handler := source.Handler
			sources[i].Devices = usable
			sources[i].Problems = slices.Concat(source.Problems, invalidDevices(handler.GetName(), handler.GetEndpoint(), refused))
		}
	}
	return disks
}

func (p Policy) checkNodes(handler string, device *discoveryv0.Device, nodes DeviceNodes) error {
	for _, spec := range device.GetDeviceSpecs() {
		host := hostPath(spec)
		if err := p.AllowFromHandlers.checkClass(handler, host, nodes); err != nil {
			return fmt.Errorf("device node of host path %.100q, %w", host, err)
		}
		if !p.allows(host) {
			if err := nodes.Check(host); err != nil {
				return notAllowed("device node", host, err.Error())
			}
		}
	}
	return nil
}

func hostPath(spec *discoveryv0.DeviceSpec) string {
	return path.Clean(cmp.Or(spec.GetHostPath(), spec.GetContainerPath()))
}

// AllowLists are settings of the allow lists of handlers, by the name of the handler. A list that
// is nil is that of the handler's declaration: handlers of others have none.
type AllowLists map[string]catalog.Allow

// UnmarshalText reads a JSON object. It makes AllowLists a flag. An empty text has no lists, as for
// other flags.
func (l *AllowLists) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields() // a wrong key must not allow everything
	if err := decoder.Decode((*map[string]catalog.Allow)(l)); err != nil {
		return fmt.Errorf("decode the allow lists: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return errors.New("decode the allow lists: must be one JSON object")
	}
	return nil
}

// of returns the allow list of a handler.
func (l AllowLists) of(handler string) catalog.Allow {
	declared, _ := catalog.Find(handler)
	allow := declared.Allow
	if set := l[handler]; set.DeviceClasses != nil {
		allow.DeviceClasses = set.DeviceClasses
	}
	if set := l[handler]; set.PropertyPrefixes != nil {
		allow.PropertyPrefixes = set.PropertyPrefixes
	}
	return allow
}

// checkName returns a function that checks the names of the properties of a list. The author of the
// Configuration allows names by writing them into the details, as udev's `properties` do: the
// handler cannot choose these.
func (l AllowLists) checkName(list List) func(name string) error {
	prefixes := l.of(list.Handler).PropertyPrefixes
	if isEverything(prefixes) {
		return func(string) error { return nil }
	}
	named := map[string]bool{}
	for _, word := range strings.FieldsFunc(list.Details, endsName) {
		named[word] = true
	}
	return func(name string) error {
		if named[name] || slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			return nil
		}
		return notListed(list.Handler, "properties", "whose names begin with", prefixes, "propertyPrefixes")
	}
}

// endsName returns whether the name of an environment variable cannot contain the character.
func endsName(r rune) bool {
	return !strings.ContainsRune("-._0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", r)
}

// checkClass returns why the handler must not offer the device node. The error follows the path in
// a sentence. A link has no class, so that a list cannot contain it.
func (l AllowLists) checkClass(handler, path string, nodes DeviceNodes) error {
	classes := l.of(handler).DeviceClasses
	if isEverything(classes) {
		return nil
	}
	class, err := nodes.Class(path)
	if err == nil {
		if slices.Contains(classes, class) {
			return nil
		}
		err = fmt.Errorf("whose class is %q", class)
	}
	return fmt.Errorf("%w; %w", err, notListed(handler, "device nodes", "of the classes", classes, "deviceClasses"))
}

func isEverything(list []string) bool {
	return list == nil || slices.Contains(list, catalog.Everything)
}

// notListed names the setting that replaces a list.
func notListed(handler, items, condition string, list []string, key string) error {
	allowed := "no " + items
	if len(list) > 0 {
		allowed = fmt.Sprintf("only %s %s %s", items, condition, strings.Join(list, ", "))
	}
	return fmt.Errorf("handlers named %.100q may send %s; if containers may use it, allow it with --allow-from-handlers "+
		"(chart value global.allowFromHandlers.%.100s.%s)", handler, allowed, handler, key)
}
