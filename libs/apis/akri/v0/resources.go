package v0

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
)

// Driver is the name of the driver of Dynamic Resource Allocation, and of the DeviceClass that
// selects all of its devices.
const Driver = Group

// DeviceClassName returns the name of the DeviceClass of the extended resource akri.sh/<name>.
func DeviceClassName(name string) string { return name + "." + Group }

// ResourceOfClass returns the name in the extended resource of a DeviceClass. It is empty if
// DeviceClassName does not return such a name.
func ResourceOfClass(class string) string {
	name, ok := strings.CutSuffix(class, "."+Group)
	if !ok {
		return ""
	}
	return name
}

// How Pods get devices: from device plugins or by Dynamic Resource Allocation.
const (
	ResourcesDevicePlugin = "devicePlugin"
	ResourcesDRA          = "dra"
)

// ResourcesLabel of a Node states how Pods on it get devices, whatever the installation uses.
const ResourcesLabel = Group + "/resources"

// ResourcesConfigMap records how Pods get devices if the cluster decides it. dra-controller writes
// it once. ResourcesKey is the key of the decision, the others are those of what users read.
const (
	ResourcesConfigMap    = "akri-resources"
	ResourcesKey          = "resources"
	ResourcesReasonKey    = "reason"
	ResourcesMessageKey   = "message"
	ResourcesDecidedAtKey = "decidedAt" // as RFC 3339
	ResourcesDecidedByKey = "decidedBy"
)

// Reasons of the decision.
const (
	// ResourcesInstancesExist means that the cluster has Instances of an earlier installation,
	// which keeps how Pods get devices.
	ResourcesInstancesExist = "InstancesExist"
	// ResourcesFeaturesComplete means that all API servers have the features that Dynamic Resource
	// Allocation needs.
	ResourcesFeaturesComplete = "FeaturesComplete"
	// ResourcesFeaturesMissing means that no API server has all of them.
	ResourcesFeaturesMissing = "FeaturesMissing"
	// ResourcesServersDiffer means that the API servers differed, or that one of them did not
	// answer, for too long.
	ResourcesServersDiffer = "ServersDiffer"
)

var (
	// extendedResourceKubelet is the first version of Kubernetes whose kubelet prepares the claims
	// of Pods that request extended resources.
	extendedResourceKubelet = version.MajorMinor(1, 36)
	// injectingContainerd is the first version of containerd that injects the devices of claims by
	// default.
	injectingContainerd = version.MajorMinor(2, 0)
)

// ResourcesOf returns how Pods on the node get devices if the cluster decides it, and has decided
// as recorded. It is empty if neither the node nor the record states it.
func ResourcesOf(node *corev1.Node, recorded string) string {
	switch node.Labels[ResourcesLabel] {
	case ResourcesDevicePlugin:
		return ResourcesDevicePlugin
	case ResourcesDRA:
		return ResourcesDRA
	}
	if recorded == ResourcesDRA && ignoresClaims(node.Status.NodeInfo) {
		return ResourcesDevicePlugin
	}
	return recorded
}

// ignoresClaims reports whether the node may start a Pod without the devices of its claims: an
// older kubelet does not prepare those of extended resources, and a runtime on which the Container
// Device Interface is not enabled ignores what the kubelet asks for. Nothing shows whether it is
// enabled in containerd 1, and cri-dockerd has it since 2026.
func ignoresClaims(node corev1.NodeSystemInfo) bool {
	runtime, containerd, _ := strings.Cut(node.ContainerRuntimeVersion, "://")
	return runtime == "docker" ||
		olderThan(injectingContainerd, containerd) && runtime == "containerd" ||
		olderThan(extendedResourceKubelet, node.KubeletVersion)
}

// olderThan reports whether the text is a version before the first one.
func olderThan(first *version.Version, text string) bool {
	found, err := version.ParseGeneric(text)
	return err == nil && found.LessThan(first)
}

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

// Second parts of the names of pools that have several devices.
const (
	NodePools          = "node"
	ConfigurationPools = "configuration"
)

// maxDevicePool leaves room for the name of a ResourceSlice, which contains that of its pool.
const maxDevicePool = 200

// DevicePool returns the name of the pool, in ResourceSlices, of a device whose allocations consume
// its slots. The name of the device in the pool is that of the Instance. The scheduler records an
// allocated device by both names, so that they depend only on what does not change while the
// Instance exists. The node is that of a device that is not shared.
func DevicePool(namespace, configuration, node, instance string) string {
	pool := namespace + "/" + ConfigurationPools + "/" + configuration
	if node != "" {
		pool = namespace + "/" + NodePools + "/" + node
	}
	if len(pool) > maxDevicePool {
		return InstancePool(namespace, instance)
	}
	return pool
}

// InstancePool returns the name of the pool of one Instance. If the scheduler allocates a device
// only once, it has a device for each slot, with the name of the slot. A device stays in it while a
// claim has it, also after the scheduler can allocate a device several times.
func InstancePool(namespace, instance string) string { return namespace + "/" + instance }

// InstanceOfDevice returns the namespace and the name of the Instance of a device in
// ResourceSlices. They are empty if Akri has no such pool.
func InstanceOfDevice(pool, device string) (namespace, instance string) {
	parts := strings.Split(pool, "/")
	switch {
	case len(parts) == 2:
		return parts[0], parts[1]
	case len(parts) == 3 && (parts[1] == NodePools || parts[1] == ConfigurationPools):
		return parts[0], device
	default:
		return "", ""
	}
}
