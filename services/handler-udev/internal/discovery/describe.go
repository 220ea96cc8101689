package discovery

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"akri.sh/libs/handler"
)

var (
	usbDevnode = regexp.MustCompile(`^/dev/bus/usb/(\d{3})/(\d{3})$`)
	pciAddress = regexp.MustCompile(`^[0-9a-fA-F]{4,}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]$`)
)

// describe returns the device for a group of matches. The first is its identity. Without
// groupRecursive, all have the same devpath, and property names have no index.
func (s Spec) describe(group []match) *handler.Device {
	top := group[0]
	device := &handler.Device{Id: top.devpath, Properties: map[string]string{"UDEV_DEVPATH": top.devpath}}
	index := 0
	for i, member := range group {
		addMissing(device.Properties, member.properties)
		if member.devnode == "" || i > 0 && member.devpath == group[i-1].devpath {
			continue
		}
		suffix := ""
		if s.groupRecursive {
			suffix = fmt.Sprintf("_%d", index)
		}
		index++
		device.Properties["UDEV_DEVNODE"+suffix] = member.devnode
		device.DeviceSpecs = append(device.DeviceSpecs, deviceSpec(member.devnode, s.permissions))
		if address, ok := usbAddress(member.devnode); ok && s.resourceSuffix != "" {
			device.Properties["USB_RESOURCE_"+s.resourceSuffix+suffix] = address
		}
	}
	s.describePCI(top, device)
	return device
}

func addMissing(properties, more map[string]string) {
	for name, value := range more {
		if _, exists := properties[name]; !exists {
			properties[name] = value
		}
	}
}

func (s Spec) describePCI(top match, device *handler.Device) {
	address, ok := lastPCIAddress(top.devpath)
	if !ok {
		return
	}
	if s.resourceSuffix != "" {
		device.Properties["PCI_RESOURCE_"+s.resourceSuffix] = address
	}
	if s.vfio && top.iommuGroup != "" {
		device.DeviceSpecs = append(device.DeviceSpecs,
			deviceSpec("/dev/vfio/"+top.iommuGroup, defaultPermissions), deviceSpec("/dev/vfio/vfio", defaultPermissions))
	}
}

func deviceSpec(path, permissions string) *handler.DeviceSpec {
	return &handler.DeviceSpec{ContainerPath: path, HostPath: path, Permissions: permissions}
}

// usbAddress returns bus:device in decimal, the format of KubeVirt.
func usbAddress(devnode string) (string, bool) {
	parts := usbDevnode.FindStringSubmatch(devnode)
	if parts == nil {
		return "", false
	}
	bus, _ := strconv.Atoi(parts[1])
	number, _ := strconv.Atoi(parts[2])
	return fmt.Sprintf("%d:%d", bus, number), true
}

// lastPCIAddress returns the last PCI address in a devpath. It returns none for a USB device behind
// a PCI controller.
func lastPCIAddress(devpath string) (address string, ok bool) {
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
