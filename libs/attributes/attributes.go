// Package attributes has the names and values of device attributes, as ResourceSlices and device
// metadata have them.
package attributes

import (
	"path"
	"regexp"
)

// Attributes of each device, of the domain akri.sh.
const (
	Namespace     = "namespace"
	Configuration = "configuration"
	Instance      = "instance"
	Handler       = "handler"
	Shared        = "shared"
)

// Standard attributes of Kubernetes. The one is for claims whose devices must be close to each
// other (matchAttribute), also with devices of other drivers. The other is for programs that pass a
// device on to a virtual machine.
// https://github.com/kubernetes/dynamic-resource-allocation/blob/master/deviceattribute/attribute.go
const (
	PCIeRoot = "resource.kubernetes.io/pcieRoot"
	PCIBusID = "resource.kubernetes.io/pciBusID"
)

// The API server accepts no longer names and values.
const maxName, maxValue = 32, 64

var name = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// devicePath is the property with the path of the device below /sys, which handler-udev sends.
const devicePath = "UDEV_DEVPATH"

// pciPath matches the path of a device below a PCI function of a root complex, pciAddress that of a
// PCI function.
var (
	pciPath    = regexp.MustCompile(`^/devices/(pci[0-9a-f]{4}:[0-9a-f]{2})/[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?:/|$)`)
	pciAddress = regexp.MustCompile(`^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
)

// IsName reports whether a property can be an attribute.
func IsName(property string) bool { return len(property) <= maxName && name.MatchString(property) }

// IsValue reports whether a string is not too long for an attribute.
func IsValue(value string) bool { return len(value) <= maxValue }

// OfProperties returns the properties that can be attributes.
func OfProperties(properties map[string]string) map[string]string {
	found := map[string]string{}
	for name, value := range properties {
		if IsName(name) && IsValue(value) {
			found[name] = value
		}
	}
	return found
}

// Standard returns the standard attributes that follow from the properties of a device. A device
// below a PCI function, such as a disk, has no address on the PCI bus: the path has that of its
// controller.
func Standard(properties map[string]string) map[string]string {
	found := map[string]string{}
	root := pciPath.FindStringSubmatch(properties[devicePath])
	if root == nil {
		return found
	}
	found[PCIeRoot] = root[1]
	if last := path.Base(properties[devicePath]); pciAddress.MatchString(last) {
		found[PCIBusID] = last
	}
	return found
}
