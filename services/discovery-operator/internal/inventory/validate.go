package inventory

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	akriv0 "akri.sh/libs/apis/akri/v0"
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
