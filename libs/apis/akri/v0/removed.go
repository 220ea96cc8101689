package v0

// RemovedField is a field that only early versions of upstream Akri had.
type RemovedField struct {
	// Type of the field in OpenAPI.
	Type string
	// Today names the field that replaces it.
	Today string
}

// RemovedFields are the removed fields of the spec of a Configuration. The CRD declares them to
// refuse them with a message that names the field of today, because the API server finds unknown
// fields before it calls the webhook, and its message names no other field.
var RemovedFields = map[string]RemovedField{
	"protocol":            {"object", "spec.discoveryHandler with name, for example udev, and discoveryDetails"},
	"brokerPodSpec":       {"object", "spec.brokerSpec.brokerPodSpec"},
	"brokerJobSpec":       {"object", "spec.brokerSpec.brokerJobSpec"},
	"properties":          {"object", "spec.brokerProperties"},
	"units":               {"integer", "spec.capacity"},
	"discoveryDetails":    {"string", "spec.discoveryHandler.discoveryDetails"},
	"discoveryProperties": {"array", "spec.discoveryHandler.discoveryProperties"},
}

// Message returns the message with which the field is refused.
func (f RemovedField) Message() string { return "unknown field; use " + f.Today }
