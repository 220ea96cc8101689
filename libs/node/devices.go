package node

import (
	"slices"

	akriv0 "akri.sh/libs/apis/akri/v0"
	discoveryv1 "akri.sh/proto/akri/discovery/v1"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// devices are the devices of a Configuration by the short name of their Instance. Several devices
// can have one short name.
type devices map[string][]*discoveryv1.Device

// put adds or replaces a device. It changes no slice.
func (d devices) put(device *discoveryv1.Device) {
	others := slices.DeleteFunc(slices.Clone(d[device.GetInstance()]), func(other *discoveryv1.Device) bool {
		return other.GetId() == device.GetId()
	})
	d[device.GetInstance()] = append(others, device)
}

// of returns the device of the Instance, or nil. If the Instance has no device id, the short name
// must be that of one device only: a container must not get another device.
func (d devices) of(instance *instancev1.Instance) *discoveryv1.Device {
	named := d[akriv0.ShortInstanceName(instance.GetName())]
	if instance.GetDeviceId() == "" {
		if len(named) == 1 && named[0].GetInstance() == instance.GetName() {
			return named[0]
		}
		return nil
	}
	for _, device := range named {
		if device.GetId() == instance.GetDeviceId() {
			return device
		}
	}
	return nil
}
