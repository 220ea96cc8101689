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
	// lostTime is how long such a device stays in its slice. Kubernetes evicts Pods only while the
	// device has the taint.
	lostTime = 5 * time.Minute
)

// EvictsPods reports whether the Pods of devices that were removed must be evicted.
func (f Features) EvictsPods(configuration *akriv0.Configuration) bool {
	return f.Taints && configuration.Annotations[akriv0.LostDevicesAnnotation] == akriv0.EvictPods
}

// ConfigurationOf returns the name of the Configuration of a published device.
func ConfigurationOf(device resourcev1.Device) string {
	if name := device.Attributes[attributes.Configuration].StringValue; name != nil {
		return *name
	}
	return ""
}

// Lost returns the offer of a published device that was removed, with the taint that evicts Pods.
func Lost(slice *resourcev1.ResourceSlice, device resourcev1.Device) Offer {
	lost := Offer{Device: *device.DeepCopy()}
	if slice.Spec.NodeSelector != nil {
		lost.Nodes = nodesOf(slice.Spec.NodeSelector)
	}
	if _, tainted := LostWait(device); !tainted {
		lost.Taints = []resourcev1.DeviceTaint{{Key: lostTaint, Effect: resourcev1.DeviceTaintEffectNoExecute}}
	}
	return lost
}

// LostWait returns how long the device with the taint stays, and false without the taint. Unlike
// other waits it begins by the clock of the API server, which sets the time of the taint: that time
// survives a restart of the process.
func LostWait(device resourcev1.Device) (grace.Wait, bool) {
	for _, taint := range device.Taints {
		if taint.Key == lostTaint && taint.TimeAdded != nil {
			return grace.Wait{Awaited: "the device returns", Since: taint.TimeAdded.Time, For: lostTime, Then: "the device leaves its slice"}, true
		}
	}
	return grace.Wait{}, false
}
