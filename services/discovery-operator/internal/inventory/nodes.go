package inventory

import (
	"cmp"
	"fmt"
	"path"
	"slices"

	discoveryv0 "akri.sh/proto/v0"
)

// DeviceNodes are the device nodes of the kernel at one time.
type DeviceNodes interface {
	// Check returns why a device node must not be offered. The error follows the path in a
	// sentence.
	Check(path string) error
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
			if err := p.checkNodes(device, nodes); err != nil {
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

func (p Policy) checkNodes(device *discoveryv0.Device, nodes DeviceNodes) error {
	for _, spec := range device.GetDeviceSpecs() {
		if host := hostPath(spec); !p.allows(host) {
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
