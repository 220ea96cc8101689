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
	instancev1 "akri.sh/proto/akri/instance/v1"
	discoveryv0 "akri.sh/proto/v0"
)

// Limits of one list of a handler. They protect the memory of the services that handle the devices.
const (
	maxProperties   = 64
	maxPropertySize = 4 << 10
	maxPaths        = 64
	// maxProblems keeps the status of a Configuration readable.
	maxProblems = 10
)

// List is a list of devices that an endpoint sends for a Configuration.
type List struct {
	Handler, Endpoint string
	// Details are the discoveryDetails of the Configuration.
	Details string
	Devices []*discoveryv0.Device
	// Previous are the valid devices of the previous list.
	Previous []*discoveryv0.Device
}

// Validate splits a list into the valid devices, sorted by id without duplicates, and the problems
// of the others. Of too many devices, those of the previous list stay.
func Validate(policy Policy, list List) ([]*discoveryv0.Device, []*instancev1.Problem) {
	checkName := policy.AllowFromHandlers.checkName(list)
	var problems []string
	valid := make([]*discoveryv0.Device, 0, len(list.Devices))
	for _, device := range list.Devices {
		if err := validateDevice(policy, device, checkName); err != nil {
			problems = append(problems, err.Error())
			continue
		}
		valid = append(valid, device)
	}
	slices.SortStableFunc(valid, func(a, b *discoveryv0.Device) int { return strings.Compare(a.GetId(), b.GetId()) })
	valid = slices.CompactFunc(valid, func(a, b *discoveryv0.Device) bool { return a.GetId() == b.GetId() })
	if extra := len(valid) - policy.MaxDevices; extra > 0 {
		problems = append(problems, fmt.Sprintf("%d devices: %d are refused, because --max-devices is %d", len(valid), extra, policy.MaxDevices))
		valid = limit(valid, list.Previous, policy.MaxDevices)
	}
	return valid, invalidDevices(list.Handler, list.Endpoint, problems)
}

// limit returns the first devices by id, those of the previous list before others: new devices must
// not replace devices that are in use.
func limit(devices, previous []*discoveryv0.Device, count int) []*discoveryv0.Device {
	known := make(map[string]bool, len(previous))
	for _, device := range previous {
		known[device.GetId()] = true
	}
	limited := slices.DeleteFunc(slices.Clone(devices), func(d *discoveryv0.Device) bool { return !known[d.GetId()] })
	added := slices.DeleteFunc(devices, func(d *discoveryv0.Device) bool { return known[d.GetId()] })
	limited = append(limited, added...)[:count]
	slices.SortFunc(limited, func(a, b *discoveryv0.Device) int { return strings.Compare(a.GetId(), b.GetId()) })
	return limited
}

// invalidDevices sorts the messages: the order of devices in a list has no meaning.
func invalidDevices(handler, endpoint string, messages []string) []*instancev1.Problem {
	slices.Sort(messages)
	if extra := len(messages) - maxProblems; extra > 0 {
		messages = append(messages[:maxProblems], fmt.Sprintf("%d more invalid devices", extra))
	}
	var problems []*instancev1.Problem
	for _, message := range messages {
		problems = append(problems, &instancev1.Problem{
			Reason:  akriv0.ReasonInvalidDevice,
			Message: fmt.Sprintf("Discovery Handler %q at %s sent %s", handler, endpoint, message),
		})
	}
	return problems
}

func validateDevice(policy Policy, device *discoveryv0.Device, checkName func(name string) error) error {
	id := device.GetId()
	if err := akriv0.ValidateDeviceID(id); err != nil {
		return fmt.Errorf("a device %w", err)
	}
	if err := validateProperties(policy, device.GetProperties(), checkName); err != nil {
		return fmt.Errorf("device %.100q with %w", id, err)
	}
	if err := validatePaths(policy, device); err != nil {
		return fmt.Errorf("device %.100q with %w", id, err)
	}
	return nil
}

func validateProperties(policy Policy, properties map[string]string, checkName func(name string) error) error {
	if len(properties) > maxProperties {
		return fmt.Errorf("%d properties: must be at most %d", len(properties), maxProperties)
	}
	for name, value := range properties {
		if size := len(name) + len(value); size > maxPropertySize {
			return fmt.Errorf("property %.100q of %d bytes: must be at most %d bytes", name, size, maxPropertySize)
		}
		if err := cmp.Or(policy.checkProperty(name, value), checkName(name)); err != nil {
			return fmt.Errorf("property %.100q: %w", name, err)
		}
	}
	return nil
}

func validatePaths(policy Policy, device *discoveryv0.Device) error {
	if n := len(device.GetMounts()) + len(device.GetDeviceSpecs()); n > maxPaths {
		return fmt.Errorf("%d mounts and device nodes: must be at most %d", n, maxPaths)
	}
	for _, mount := range device.GetMounts() {
		if err := validatePathPair("mount", mount.GetContainerPath(), mount.GetHostPath(), policy.checkMount); err != nil {
			return err
		}
	}
	for _, spec := range device.GetDeviceSpecs() {
		if err := validatePathPair("device node", spec.GetContainerPath(), spec.GetHostPath(), policy.checkDeviceNode); err != nil {
			return err
		}
		if strings.Trim(spec.GetPermissions(), "rwm") != "" {
			return fmt.Errorf("device node %q with permissions %.20q: must be letters of rwm",
				spec.GetContainerPath(), spec.GetPermissions())
		}
	}
	return nil
}

// validatePathPair takes the container path as host path if the host path is empty.
func validatePathPair(kind, container, host string, check func(host string) error) error {
	if !validPath(container) || (host != "" && !validPath(host)) {
		return fmt.Errorf("%s %.100q on host path %.100q: must be absolute paths", kind, container, host)
	}
	return check(cmp.Or(host, container))
}

func validPath(p string) bool {
	return path.IsAbs(p) && len(p) <= maxPropertySize && !strings.ContainsRune(p, 0)
}

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
