package v0

// Condition types of a Configuration. True is the normal status of each except Stalled.
const (
	// ConditionReady means that the Configuration is accepted and acted upon. It does not depend on
	// devices, nodes, handlers and brokers, because Helm and Flux wait for it.
	ConditionReady = "Ready"
	// ConditionStalled means that the Configuration is not acted upon until a user changes
	// something. It does not exist otherwise.
	ConditionStalled = "Stalled"
	// ConditionDevicesWorking is the verdict on the devices: True if those that were found work and
	// others would be found. Its reason is the state. broker-controller writes it.
	ConditionDevicesWorking = "DevicesWorking"
	// ConditionBrokersWorking is the verdict on the brokers: True if as many run as the
	// Configuration wants. Its reason is the state. broker-controller writes it.
	ConditionBrokersWorking = "BrokersWorking"
	// ConditionHandlerRegistered means that the Discovery Handler is registered on the nodes.
	ConditionHandlerRegistered = "HandlerRegistered"
	// ConditionDetailsAccepted means that the Discovery Handler accepts the details and properties.
	ConditionDetailsAccepted = "DetailsAccepted"
	// ConditionDevicesAccepted means that every discovered device has an Instance.
	ConditionDevicesAccepted = "DevicesAccepted"
	// ConditionSlotsReadable means that all values of deviceUsage are valid.
	ConditionSlotsReadable = "SlotsReadable"
	// ConditionPropertiesAgree means that all nodes that share a device report the same properties.
	// Otherwise the devices can be used, with the properties that were established.
	ConditionPropertiesAgree = "PropertiesAgree"
	// ConditionNodesReporting means that all nodes that have reported on the Configuration still
	// do.
	ConditionNodesReporting = "NodesReporting"
	// ConditionDevicesFound means that the details match at least one device.
	ConditionDevicesFound = "DevicesFound"
	// ConditionSpecValid means that the webhook would accept the spec. broker-controller writes it.
	ConditionSpecValid = "SpecValid"
	// ConditionBrokersRunning means that every device has its brokers, and that they run or have
	// completed. broker-controller writes it.
	ConditionBrokersRunning = "BrokersRunning"
)

// Reasons of Problems and conditions.
const (
	// ReasonHandlerNotRegistered means that no handler with the name is registered on the node.
	ReasonHandlerNotRegistered = "HandlerNotRegistered"
	// ReasonHandlerOffline means that a registered handler cannot be reached.
	ReasonHandlerOffline = "HandlerOffline"
	// ReasonHandlerSocketMissing means that the socket of a registered handler does not exist.
	ReasonHandlerSocketMissing = "HandlerSocketMissing"
	// ReasonInvalidDetails means that the handler rejected the details with gRPC code
	// InvalidArgument.
	ReasonInvalidDetails = "InvalidDetails"
	// ReasonDiscoverFailed means that the handler returned another error.
	ReasonDiscoverFailed = "DiscoverFailed"
	// ReasonPropertyNotFound means that a Secret, ConfigMap or key of a discovery property does not
	// exist.
	ReasonPropertyNotFound = "PropertyNotFound"
	// ReasonPropertyForbidden means that permission to read a Secret or ConfigMap of a discovery
	// property is missing.
	ReasonPropertyForbidden = "PropertyForbidden"
	// ReasonInvalidDevice means that a handler sent an invalid device, for example one without an
	// id.
	ReasonInvalidDevice = "InvalidDevice"
	// ReasonDigestCollision means that a device has the digest of another one and that no longer
	// name is possible.
	ReasonDigestCollision = "DigestCollision"
	// ReasonTooManyDevices means that a node reports more devices than instance-writer accepts of
	// one node.
	ReasonTooManyDevices = "TooManyDevices"
	// ReasonTooManyProblems means that a node reports more handlers and problems than
	// instance-writer stores of it.
	ReasonTooManyProblems = "TooManyProblems"
	// ReasonNameTaken means that the name belongs to another namespace or Configuration, or that
	// one of both is named like an Instance of the other.
	ReasonNameTaken = "NameTaken"
	// ReasonNodeNotAllowed means that a node reports devices of a Configuration that does not allow
	// the node, or that the Configuration allows no Node of the cluster.
	ReasonNodeNotAllowed = "NodeNotAllowed"
	// ReasonUndecided means that the cluster has yet to decide how Pods get devices. No Instance is
	// created before.
	ReasonUndecided = "Undecided"
	// ReasonSlotMalformed means that a value of deviceUsage is malformed. Its slot is not offered.
	ReasonSlotMalformed = "SlotMalformed"
	// ReasonPropertiesDiffer means that nodes report other properties of a device than its Instance
	// has.
	ReasonPropertiesDiffer = "PropertiesDiffer"
	// ReasonNodeNotReporting means that a node that has reported before, or that an Instance lists,
	// no longer reports.
	ReasonNodeNotReporting = "NodeNotReporting"
	// ReasonNothingMatched means that no node has found a device.
	ReasonNothingMatched = "NothingMatched"
	// ReasonInvalidSpec means that the webhook would refuse the spec.
	ReasonInvalidSpec = "InvalidSpec"
	// ReasonNoBroker means that the Configuration has no brokerSpec.
	ReasonNoBroker = "NoBroker"
	// ReasonStarting means that some brokers are starting.
	ReasonStarting = "Starting"
	// ReasonNotStarted means that a broker has not started in time.
	ReasonNotStarted = "NotStarted"
	// ReasonBrokerFailed means that a broker has ended and Kubernetes gives no reason.
	ReasonBrokerFailed = "BrokerFailed"
	// ReasonBrokerRefused means that the API server rejected a broker.
	ReasonBrokerRefused = "BrokerRefused"
	// ReasonNotNeeded is the reason of a verdict on brokers that are not wanted. Other verdicts
	// have the state as their reason: Works, Partly, Waiting, Broken, NoneFound or OutOfService.
	ReasonNotNeeded = "NotNeeded"
	// ReasonAsExpected is the reason of conditions that are True.
	ReasonAsExpected = "AsExpected"
	// ReasonNoReport means that no node has reported what the condition is about yet.
	ReasonNoReport = "NoReport"
)

// Reasons of Events of a Configuration. Other Events have the reason of a condition.
const (
	// ReasonDeviceAdded means that a node sees a device.
	ReasonDeviceAdded = "DeviceAdded"
	// ReasonDeviceRemoved means that a node no longer sees a device.
	ReasonDeviceRemoved = "DeviceRemoved"
)

// Reasons are all reasons of Problems, conditions and Events. docs/troubleshooting.md has a section
// for each, in this order.
var Reasons = []string{
	ReasonHandlerNotRegistered, ReasonHandlerOffline, ReasonHandlerSocketMissing, ReasonInvalidDetails,
	ReasonDiscoverFailed, ReasonPropertyNotFound, ReasonPropertyForbidden, ReasonInvalidDevice,
	ReasonDigestCollision, ReasonTooManyDevices, ReasonTooManyProblems, ReasonNameTaken, ReasonNodeNotAllowed,
	ReasonUndecided, ReasonSlotMalformed, ReasonPropertiesDiffer, ReasonNodeNotReporting, ReasonNothingMatched, ReasonInvalidSpec,
	ReasonNoBroker, ReasonStarting, ReasonNotStarted, ReasonBrokerFailed, ReasonBrokerRefused, ReasonNotNeeded,
	ReasonAsExpected, ReasonNoReport, ReasonDeviceAdded, ReasonDeviceRemoved,
}
