package desired

import (
	"regexp"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// attributePCIeRoot is a standard attribute of Kubernetes, for claims whose devices must be close
// to each other (matchAttribute), also with devices of other drivers.
// https://github.com/kubernetes/dynamic-resource-allocation/blob/master/deviceattribute/attribute.go
const attributePCIeRoot = "resource.kubernetes.io/pcieRoot"

// devicePath is the property with the path of the device below /sys, which handler-udev sends.
const devicePath = "UDEV_DEVPATH"

// pciPath matches the path of a device below a PCI function of a root complex.
var pciPath = regexp.MustCompile(`^/devices/(pci[0-9a-f]{4}:[0-9a-f]{2})/[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?:/|$)`)

// pcieRoot returns the root complex of the device, or an empty string. Its address on the PCI bus
// is not an attribute: the path has that of the controller if the device is on another bus, such as
// USB. Several nodes can see a shared device at different places.
func pcieRoot(instance *akriv0.Instance) string {
	found := pciPath.FindStringSubmatch(instance.Spec.BrokerProperties[devicePath])
	if found == nil || instance.Spec.Shared {
		return ""
	}
	return found[1]
}
