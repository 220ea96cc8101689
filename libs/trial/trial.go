// Package trial has the messages of `kubectl akri try`: what a Discovery Handler would find,
// without a Configuration. kubectl akri runs the command `try` in the Pods of discovery-operator or
// the agent. The command reads a Request from its standard input and writes a Result to its
// standard output, both as JSON. It ends when its input ends, because a command in a container
// outlives the connection of its user.
//
// Both sides ignore fields that they do not have, so that their versions may differ.
package trial

import "time"

// Request asks for the devices that match details.
type Request struct {
	// Handler is the name of the Discovery Handler.
	Handler string `json:"handler"`
	// Details are as spec.discoveryHandler.discoveryDetails of a Configuration.
	Details string `json:"details"`
	// Timeout limits the time until the first list of the handler, in nanoseconds.
	Timeout time.Duration `json:"timeout"`
	// OnlyClosest requests only Result.Groups.
	OnlyClosest bool `json:"onlyClosest,omitempty"`
}

// Result has what the node's endpoints of the handler found.
type Result struct {
	Node string `json:"node"`
	// Answered is true if an endpoint has sent a list. The list can be empty.
	Answered bool `json:"answered"`
	// Devices are those that Akri would offer, by id.
	Devices []Device `json:"devices,omitempty"`
	// Problems are those that a Configuration would show in its status, and those of calling the
	// handler.
	Problems []Problem `json:"problems,omitempty"`
	// Groups are devices that come close to matching if none matches, and if the handler explains
	// it. The closest come first.
	Groups []Group `json:"groups,omitempty"`
}

// Device is a device that the handler found.
type Device struct {
	ID string `json:"id"`
	// Shared is true if other nodes may see the same device.
	Shared     bool              `json:"shared"`
	Properties map[string]string `json:"properties,omitempty"`
	// DeviceNodes and Mounts are paths of the node that containers get.
	DeviceNodes []string `json:"deviceNodes,omitempty"`
	Mounts      []string `json:"mounts,omitempty"`
}

// Problem is why devices are missing.
type Problem struct {
	// Reason is that of a problem in the status of a Configuration, or NoList.
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

// NoList is the reason of a handler that has sent no list until the timeout.
const NoList = "NoList"
