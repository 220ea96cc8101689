package console

import (
	"cmp"
	"slices"
	"strings"

	"akri.sh/libs/inspect/explain"
)

// documentation is the address of the directory docs, as in the alerts of the chart.
const documentation = "https://github.com/akri-mesh/akri/blob/main/docs/"

// reasons are the sections of docs/troubleshooting.md: reasons of conditions, problems and Events.
var reasons = []string{
	"HandlerNotRegistered", "HandlerOffline", "HandlerSocketMissing", "InvalidDetails", "DiscoverFailed", "PropertyNotFound", "PropertyForbidden",
	"InvalidDevice", "DigestCollision", "TooManyDevices", "TooManyProblems", "NameTaken", "NodeNotAllowed", "SlotMalformed", "PropertiesDiffer",
	"NodeNotReporting", "NothingMatched", "InvalidSpec", "NoBroker", "Starting", "NotStarted", "BrokerFailed", "BrokerRefused", "NotNeeded", "AsExpected",
	"NoReport", "DeviceAdded", "DeviceRemoved",
}

// reasonOf has the reasons for which a cause has another name.
var reasonOf = map[explain.CauseID]string{
	explain.NoSuchHandler: "HandlerNotRegistered", explain.DetailsRefused: "InvalidDetails", explain.DiscoveryFailed: "DiscoverFailed",
	explain.DeviceRefused: "InvalidDevice", explain.SpecInvalid: "InvalidSpec", explain.SecretRightMissing: "PropertyForbidden",
}

// reasonPage returns the address of the documentation of a reason, or nothing.
func reasonPage(reason string) string {
	if !slices.Contains(reasons, reason) {
		return ""
	}
	return documentation + "troubleshooting.md#" + strings.ToLower(reason)
}

// causePage returns the address of the documentation of a cause. The table of all causes documents
// those that are no reasons.
func causePage(id explain.CauseID) string {
	if page := reasonPage(cmp.Or(reasonOf[id], string(id))); page != "" {
		return page
	}
	return documentation + "kubectl-akri.md#explain"
}
