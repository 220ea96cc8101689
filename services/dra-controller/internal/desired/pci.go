package desired

import (
	"regexp"

	resourcev1 "k8s.io/api/resource/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Standard attributes of Kubernetes, for claims whose devices must be close to each other
// (matchAttribute), also with devices of other drivers.
// https://github.com/kubernetes/dynamic-resource-allocation/blob/master/deviceattribute/attribute.go
const (
	attributePCIeRoot = "resource.kubernetes.io/pcieRoot"
	attributePCIBusID = "resource.kubernetes.io/pciBusID"
)

// devicePath is the property with the path of the device below /sys, which handler-udev sends.
const devicePath = "UDEV_DEVPATH"

// pciPath matches the path of a device that a PCI function has: the root complex, the bridges, the
// function, and the rest.
var pciPath = regexp.MustCompile(
	`^/devices/(pci[0-9a-f]{4}:[0-9a-f]{2})/(?:[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]/)*([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])(?:/|$)`)

// otherBus matches the path of a device that is behind a controller of USB, or of another PCI bus.
var otherBus = regexp.MustCompile(`.+/(usb[0-9]+|pci[0-9a-f]+:[0-9a-f]{2})/`)

// pci returns where the device is on the PCI Express bus of its node. A device on another bus has
// the root of the controller of that bus, but not its address, which is not that of the device.
// Several nodes can see a shared device at different places.
func pci(instance *akriv0.Instance) map[resourcev1.QualifiedName]resourcev1.DeviceAttribute {
	place := map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}
	path := instance.Spec.BrokerProperties[devicePath]
	found := pciPath.FindStringSubmatch(path)
	if found == nil || instance.Spec.Shared {
		return place
	}
	place[attributePCIeRoot] = resourcev1.DeviceAttribute{StringValue: &found[1]}
	if !otherBus.MatchString(path[len("/devices/"+found[1]):]) {
		place[attributePCIBusID] = resourcev1.DeviceAttribute{StringValue: &found[2]}
	}
	return place
}
