package admission

import (
	"reflect"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// renamed maps fields of early versions of upstream Akri to the fields of today, by the type that
// had the field.
var renamed = map[reflect.Type]map[string]string{
	reflect.TypeFor[akriv0.ConfigurationSpec](): {
		"protocol":            "spec.discoveryHandler with name, for example udev, and discoveryDetails",
		"brokerPodSpec":       "spec.brokerSpec.brokerPodSpec",
		"brokerJobSpec":       "spec.brokerSpec.brokerJobSpec",
		"properties":          "spec.brokerProperties",
		"units":               "spec.capacity",
		"discoveryDetails":    "spec.discoveryHandler.discoveryDetails",
		"discoveryProperties": "spec.discoveryHandler.discoveryProperties",
	},
	reflect.TypeFor[akriv0.DiscoveryHandler](): {
		"debugEcho": "spec.discoveryHandler.name and discoveryDetails",
		"onvif":     "spec.discoveryHandler.name and discoveryDetails",
		"opcua":     "spec.discoveryHandler.name and discoveryDetails",
		"udev":      "spec.discoveryHandler.name and discoveryDetails",
	},
}

// unknownMessage describes an unknown field and names the field of today if it was renamed.
func unknownMessage(unknown unknownField) string {
	if today, ok := renamed[unknown.parent][unknown.name]; ok {
		return "unknown field; use " + today
	}
	return "unknown field"
}
