package explain

// CauseID identifies a cause for programs. It does not change between versions.
type CauseID string

// Causes of the installation.
const (
	// NotInstalled means that the cluster has no workloads of Akri.
	NotInstalled CauseID = "NotInstalled"
	// ServiceNotReady means that a service of Akri has fewer ready Pods than it should have.
	ServiceNotReady CauseID = "ServiceNotReady"
	// WebhookUnavailable means that no replica serves the webhook, so that the API server refuses
	// new and changed Configurations.
	WebhookUnavailable CauseID = "WebhookUnavailable"
	// VersionSkew means that Pods of Akri run different versions.
	VersionSkew CauseID = "VersionSkew"
	// NodeWithoutAkri means that the node services do not run on a node.
	NodeWithoutAkri CauseID = "NodeWithoutAkri"
	// NodeNotReporting means that a node has stopped to report to instance-writer.
	NodeNotReporting CauseID = "NodeNotReporting"
	// NodeNotReady means that Kubernetes cannot use the node.
	NodeNotReady CauseID = "NodeNotReady"
)

// Causes of Configurations and discovery.
const (
	// NotFound means that there is no such object.
	NotFound CauseID = "NotFound"
	// NoSuchHandler means that no handler has the name in the Configuration.
	NoSuchHandler CauseID = "NoSuchHandler"
	// HandlerOffline means that the handler has registered and cannot be reached.
	HandlerOffline CauseID = "HandlerOffline"
	// SpecInvalid means that the webhook would refuse the Configuration.
	SpecInvalid CauseID = "SpecInvalid"
	// DetailsRefused means that the handler does not accept discoveryDetails.
	DetailsRefused CauseID = "DetailsRefused"
	// DiscoveryFailed means that the handler returns an error.
	DiscoveryFailed CauseID = "DiscoveryFailed"
	// SecretRightMissing means that instance-writer may not read a Secret or ConfigMap.
	SecretRightMissing CauseID = "SecretRightMissing"
	// PropertyNotFound means that a Secret, a ConfigMap or a key does not exist.
	PropertyNotFound CauseID = "PropertyNotFound"
	// NameTaken means that another Configuration uses the name.
	NameTaken CauseID = "NameTaken"
	// NothingMatched means that the handlers have examined devices, and none matches.
	NothingMatched CauseID = "NothingMatched"
	// DigestCollision means that two devices have the same name.
	DigestCollision CauseID = "DigestCollision"
	// DeviceRefused means that Akri does not accept a device of the handler.
	DeviceRefused CauseID = "DeviceRefused"
	// SlotMalformed means that a value of deviceUsage was edited by hand.
	SlotMalformed CauseID = "SlotMalformed"
)

// Causes of Pods.
const (
	// NoDeviceRequested means that the Pod requests no resource of Akri.
	NoDeviceRequested CauseID = "NoDeviceRequested"
	// ResourceUnknown means that no Configuration and no Instance has the name of the resource.
	ResourceUnknown CauseID = "ResourceUnknown"
	// ResourceNotAdvertised means that the node's kubelet does not have the resource of a device
	// that the node sees.
	ResourceNotAdvertised CauseID = "ResourceNotAdvertised"
	// DriverMissing means that dra-kubelet-plugin does not run on a node that uses Dynamic Resource
	// Allocation.
	DriverMissing CauseID = "DriverMissing"
	// FeatureMissing means that the cluster does not allocate extended resources with Dynamic
	// Resource Allocation.
	FeatureMissing CauseID = "FeatureMissing"
	// CapacityUsed means that all slots of the device are held.
	CapacityUsed CauseID = "CapacityUsed"
	// ClaimNotFound means that a ResourceClaim or a ResourceClaimTemplate that a Pod names does not
	// exist.
	ClaimNotFound CauseID = "ClaimNotFound"
	// NoDeviceSelected means that no device matches a request of a ResourceClaim.
	NoDeviceSelected CauseID = "NoDeviceSelected"
	// DeviceTainted means that all devices that match a request of a ResourceClaim have a taint
	// that it does not tolerate.
	DeviceTainted CauseID = "DeviceTainted"
	// ClaimNotPrepared means that the node could not prepare a ResourceClaim of the Pod.
	ClaimNotPrepared CauseID = "ClaimNotPrepared"
	// SchedulerBypassed means that a Pod runs without its device, because it was created with the
	// name of its node, so that the scheduler did not allocate the device.
	SchedulerBypassed CauseID = "SchedulerBypassed"
	// Unschedulable means that the scheduler finds no node for a reason other than the device.
	Unschedulable CauseID = "Unschedulable"
	// OutdatedNodeStatus means that the scheduler placed the Pod before the node had reported that
	// another node reserved the slot.
	OutdatedNodeStatus CauseID = "OutdatedNodeStatus"
	// AllocationRefused means that device-plugin-host refused the device.
	AllocationRefused CauseID = "AllocationRefused"
	// PodRejected means that the kubelet rejected the Pod for a reason other than the device.
	PodRejected CauseID = "PodRejected"
	// SlotNotHeld means that a Pod runs and its node holds no slot.
	SlotNotHeld CauseID = "SlotNotHeld"
	// PodSecurity means that the namespace's Pod Security level refuses the broker.
	PodSecurity CauseID = "PodSecurity"
	// WebhookRefused means that an admission webhook of the cluster refuses the broker.
	WebhookRefused CauseID = "WebhookRefused"
	// QuotaExceeded means that a ResourceQuota refuses the broker.
	QuotaExceeded CauseID = "QuotaExceeded"
	// BrokerRefused means that the API server refuses the broker for another reason.
	BrokerRefused CauseID = "BrokerRefused"
	// ImageNotPulled means that the node cannot get the image of a container.
	ImageNotPulled CauseID = "ImageNotPulled"
	// ContainerNotCreated means that the kubelet cannot create a container.
	ContainerNotCreated CauseID = "ContainerNotCreated"
	// CrashLoop means that a container ends repeatedly.
	CrashLoop CauseID = "CrashLoop"
	// PodFailed means that the Pod has ended with an error.
	PodFailed CauseID = "PodFailed"
)
