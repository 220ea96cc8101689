package v0

// Condition types of a Configuration. All are True when all is well.
const (
	// ConditionReady sums up the others.
	ConditionReady = "Ready"
	// ConditionHandlerRegistered: the handler that the Configuration names is registered on the
	// nodes.
	ConditionHandlerRegistered = "HandlerRegistered"
	// ConditionDetailsAccepted: the handlers can use the details and properties.
	ConditionDetailsAccepted = "DetailsAccepted"
	// ConditionDevicesAccepted: every device that a handler found became part of an Instance.
	ConditionDevicesAccepted = "DevicesAccepted"
	// ConditionSlotsReadable: every value of deviceUsage says who holds the slot.
	ConditionSlotsReadable = "SlotsReadable"
)

// Reasons of Problems and of the conditions made from them.
const (
	// ReasonHandlerNotRegistered: no handler of that name is registered on the node.
	ReasonHandlerNotRegistered = "HandlerNotRegistered"
	// ReasonHandlerOffline: a registered handler cannot be reached.
	ReasonHandlerOffline = "HandlerOffline"
	// ReasonInvalidDetails: the handler refused the details (gRPC InvalidArgument).
	ReasonInvalidDetails = "InvalidDetails"
	// ReasonDiscoverFailed: the handler answered with another error.
	ReasonDiscoverFailed = "DiscoverFailed"
	// ReasonPropertyNotFound: a Secret, ConfigMap or key that a discoveryProperty names does not
	// exist.
	ReasonPropertyNotFound = "PropertyNotFound"
	// ReasonPropertyForbidden: a Secret or ConfigMap that a discoveryProperty names may not be
	// read.
	ReasonPropertyForbidden = "PropertyForbidden"
	// ReasonInvalidDevice: a handler sent a device that cannot be offered, such as one without id.
	ReasonInvalidDevice = "InvalidDevice"
	// ReasonDigestCollision: two device ids have the same digest.
	ReasonDigestCollision = "DigestCollision"
	// ReasonNameTaken: a Configuration of the same name exists in another namespace and is older.
	ReasonNameTaken = "NameTaken"
	// ReasonSlotMalformed: a value of deviceUsage, written by hand, cannot be read; that slot is
	// not offered.
	ReasonSlotMalformed = "SlotMalformed"
	// ReasonAsExpected: all is well.
	ReasonAsExpected = "AsExpected"
	// ReasonNoReport: no node has reported yet.
	ReasonNoReport = "NoReport"
)
