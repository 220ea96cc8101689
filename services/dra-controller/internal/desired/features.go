package desired

import (
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Features are the optional features of Dynamic Resource Allocation that the API server has. They
// are on by default in Kubernetes 1.36, and off in 1.34 and 1.35.
type Features struct {
	// ConsumableCapacity allows that several allocations share a device. Without it each slot is a
	// device.
	ConsumableCapacity bool
	// ExtendedResources allows that Pods request devices as extended resources.
	ExtendedResources bool
	// Taints allows that Pods of removed devices are evicted.
	Taints bool
}

// Missing returns the names of the features that the API server does not have.
func (f Features) Missing() (names []string) {
	for _, feature := range []struct {
		has  bool
		name string
	}{
		{f.ConsumableCapacity, "consumable capacity"}, {f.ExtendedResources, "extended resources"}, {f.Taints, "device taints"},
	} {
		if !feature.has {
			names = append(names, feature.name)
		}
	}
	return names
}

// FeaturesOf returns the features whose fields the objects have.
func FeaturesOf(class *resourcev1.DeviceClass, slice *resourcev1.ResourceSlice) Features {
	device := slice.Spec.Devices[0]
	return Features{
		ConsumableCapacity: device.AllowMultipleAllocations != nil,
		ExtendedResources:  class.Spec.ExtendedResourceName != nil,
		Taints:             len(device.Taints) > 0,
	}
}

// Probes returns objects that use all features. An API server drops the fields of those that it
// does not have.
func Probes() (*resourcev1.DeviceClass, *resourcev1.ResourceSlice) {
	probe := metav1.ObjectMeta{GenerateName: "akri-probe-"}
	class := &resourcev1.DeviceClass{ObjectMeta: probe, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: new(akriv0.ResourceName("probe"))}}
	slice := &resourcev1.ResourceSlice{ObjectMeta: probe, Spec: resourcev1.ResourceSliceSpec{
		Driver: akriv0.Driver, AllNodes: new(true),
		Pool: resourcev1.ResourcePool{Name: "probe", Generation: 1, ResourceSliceCount: 1},
		Devices: []resourcev1.Device{{
			Name: "probe", AllowMultipleAllocations: new(true),
			Taints: []resourcev1.DeviceTaint{{Key: lostTaint, Effect: resourcev1.DeviceTaintEffectNoExecute}},
		}},
	}}
	return class, slice
}

// maxDevices returns the number of devices that a ResourceSlice can have.
func (f Features) maxDevices() int {
	if f.Taints {
		return resourcev1.ResourceSliceMaxDevicesWithAdvancedFeatures
	}
	return resourcev1.ResourceSliceMaxDevices
}
