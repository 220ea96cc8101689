package v0

// Driver is the name of the driver of Dynamic Resource Allocation, and of the DeviceClass that
// selects all of its devices.
const Driver = Group

// ResourcesLabel of a Node states how Pods on it get devices if Akri is installed with Dynamic
// Resource Allocation: through device plugins if its value is ResourcesDevicePlugin.
const (
	ResourcesLabel        = Group + "/resources"
	ResourcesDevicePlugin = "devicePlugin"
)

// PropertiesAnnotation of a Configuration lists the properties, separated by commas, that become
// attributes of its devices in ResourceSlices. Others do not: many users may read ResourceSlices,
// and properties can contain credentials.
const PropertiesAnnotation = Group + "/attributes"

// LostDevicesAnnotation of a Configuration with the value EvictPods makes Kubernetes evict the Pods
// whose ResourceClaims have a device that was removed.
const (
	LostDevicesAnnotation = Group + "/lost-devices"
	EvictPods             = "NoExecute"
)

// DevicePool returns the name of the pool of the device of an Instance in ResourceSlices. The name
// of the device in it is that of the Instance. If the scheduler allocates a device only once, the
// pool has a device for each slot, with the name of the slot.
func DevicePool(namespace, instance string) string { return namespace + "/" + instance }
