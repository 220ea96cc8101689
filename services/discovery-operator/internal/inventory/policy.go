package inventory

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	akriv0 "akri.sh/libs/apis/akri/v0"
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
