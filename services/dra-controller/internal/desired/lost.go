package desired

import (
	"time"

	resourcev1 "k8s.io/api/resource/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/attributes"
	"akri.sh/libs/grace"
)

const (
	// lostTaint is the key of the taint of a device whose Instance was deleted.
	lostTaint = akriv0.Group + "/lost"
	// lostTime is how long the ResourceSlice of such a device stays. Kubernetes evicts Pods only
	// while the slice has the taint.
	lostTime = 5 * time.Minute
)

// EvictsPods reports whether the Pods of devices that were removed must be evicted.
func (f Features) EvictsPods(configuration *akriv0.Configuration) bool {
	return f.Taints && configuration.Annotations[akriv0.LostDevicesAnnotation] == akriv0.EvictPods
}

// ConfigurationOf returns the name of the Configuration of the device. It is empty for slices that
// Slice does not return.
func ConfigurationOf(slice *resourcev1.ResourceSlice) string {
	if len(slice.Spec.Devices) == 0 {
		return ""
	}
	name := slice.Spec.Devices[0].Attributes[attributes.Configuration].StringValue
	if name == nil {
		return ""
	}
	return *name
}

// Lost returns the ResourceSlice of a device that was removed, with the taint that evicts Pods.
func Lost(current *resourcev1.ResourceSlice) *resourcev1.ResourceSlice {
	lost := current.DeepCopy()
	lost.Spec.Pool.Generation++
	for i := range lost.Spec.Devices {
		lost.Spec.Devices[i].Taints = []resourcev1.DeviceTaint{{Key: lostTaint, Effect: resourcev1.DeviceTaintEffectNoExecute}}
	}
	return lost
}

// LostWait returns how long the slice with the taint stays, and false without the taint. Unlike
// other waits it begins by the clock of the API server, which sets the time of the taint: that time
// survives a restart of the process.
func LostWait(slice *resourcev1.ResourceSlice) (grace.Wait, bool) {
	for _, taint := range slice.Spec.Devices[0].Taints {
		if taint.Key == lostTaint && taint.TimeAdded != nil {
			return grace.Wait{Awaited: "the device returns", Since: taint.TimeAdded.Time, For: lostTime, Then: "the slice is removed"}, true
		}
	}
	return grace.Wait{}, false
}
