package console

import (
	"cmp"
	"slices"
	"strings"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
)

// documentation is the address of the directory docs, as in the alerts of the chart.
const documentation = "https://github.com/akri-mesh/akri/blob/main/docs/"

// reasonOf has the reasons for which a cause has another name.
var reasonOf = map[explain.CauseID]string{
	explain.NoSuchHandler: akriv0.ReasonHandlerNotRegistered, explain.DetailsRefused: akriv0.ReasonInvalidDetails, explain.DiscoveryFailed: akriv0.ReasonDiscoverFailed,
	explain.DeviceRefused: akriv0.ReasonInvalidDevice, explain.SpecInvalid: akriv0.ReasonInvalidSpec, explain.SecretRightMissing: akriv0.ReasonPropertyForbidden,
}

// reasonPage returns the address of the documentation of a reason, or nothing.
func reasonPage(reason string) string {
	if !slices.Contains(akriv0.Reasons, reason) {
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
