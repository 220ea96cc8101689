package selection

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"akri.sh/libs/handler"
)

var (
	usbNode    = regexp.MustCompile(`^/dev/bus/usb/(\d{3})/(\d{3})$`)
	pciAddress = regexp.MustCompile(`^[0-9a-fA-F]{4,}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$`)
)

// describe says what a broker gets with a group of devices, of which the first gives the identity. Without grouping a
// group has one devpath and names have no index.
func (s Spec) describe(group []found) *handler.Device {
	top := group[0]
	device := &handler.Device{Id: top.devpath, Properties: map[string]string{"UDEV_DEVPATH": top.devpath}}
	index := 0
	for i, member := range group {
		fill(device.Properties, member.properties)
		if member.devnode == "" || i > 0 && member.devpath == group[i-1].devpath {
			continue
		}
		suffix := ""
		if s.groupRecursive {
			suffix = fmt.Sprintf("_%d", index)
		}
		index++
		device.Properties["UDEV_DEVNODE"+suffix] = member.devnode
		device.DeviceSpecs = append(device.DeviceSpecs, node(member.devnode, s.permissions))
		if address, ok := usbAddress(member.devnode); ok && s.resource != "" {
			device.Properties["USB_RESOURCE_"+s.resource+suffix] = address
		}
	}
	s.describePCI(top, device)
	return device
}

// fill adds what is not there yet.
func fill(properties, more map[string]string) {
	for name, value := range more {
		if _, taken := properties[name]; !taken {
			properties[name] = value
		}
	}
}

func (s Spec) describePCI(top found, device *handler.Device) {
	address, ok := pciOf(top.devpath)
	if !ok {
		return
	}
	if s.resource != "" {
		device.Properties["PCI_RESOURCE_"+s.resource] = address
	}
	if s.vfio && top.iommuGroup != "" {
		device.DeviceSpecs = append(device.DeviceSpecs,
			node("/dev/vfio/"+top.iommuGroup, defaultPermissions), node("/dev/vfio/vfio", defaultPermissions))
	}
}

func node(path, permissions string) *handler.DeviceSpec {
	return &handler.DeviceSpec{ContainerPath: path, HostPath: path, Permissions: permissions}
}

// usbAddress is `bus:device` in decimal, as KubeVirt wants it.
func usbAddress(devnode string) (string, bool) {
	parts := usbNode.FindStringSubmatch(devnode)
	if parts == nil {
		return "", false
	}
	bus, _ := strconv.Atoi(parts[1])
	number, _ := strconv.Atoi(parts[2])
	return fmt.Sprintf("%d:%d", bus, number), true
}

// pciOf is the last PCI address in a devpath; a USB device behind a PCI controller is not a PCI device.
func pciOf(devpath string) (address string, ok bool) {
	for segment := range strings.SplitSeq(devpath, "/") {
		if strings.HasPrefix(segment, "usb") {
			return "", false
		}
		if pciAddress.MatchString(segment) {
			address, ok = segment, true
		}
	}
	return address, ok
}
