// Package trial has the messages of `kubectl akri try`: what a Discovery Handler would find,
// without a Configuration. kubectl akri runs the command `try` in the Pods of discovery-operator or
// the agent. The command reads a Request from its standard input and writes a Result to its
// standard output, both as JSON. It ends when its input ends, because a command in a container
// outlives the connection of its user.
//
// Both sides ignore fields that they do not have, so that their versions may differ.
package trial

import (
	"strconv"
	"strings"
	"time"
)

// Request asks for the devices that match details.
type Request struct {
	// Handler is the name of the Discovery Handler.
	Handler string `json:"handler"`
	// Details are as spec.discoveryHandler.discoveryDetails of a Configuration.
	Details string `json:"details"`
	// Timeout limits the time until the first list of the handler, in nanoseconds.
	Timeout time.Duration `json:"timeout"`
	// OnlyClosest requests only Result.Closest.
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
	// Closest are devices that come close to matching if none matches, and if the handler explains
	// it. The closest is the first.
	Closest []Miss `json:"closest,omitempty"`
}

// Miss is a device that meets some conditions of the details, and not all.
type Miss struct {
	Device string   `json:"device"`
	Met    []string `json:"met,omitempty"`
	Missed string   `json:"missed"`
	// Value is nil if the device does not have the value that Missed is about.
	Value *string `json:"value,omitempty"`
}

// String returns which condition is not met, and the value of the device.
func (m Miss) String() string {
	text := m.Missed + " did not match: "
	if len(m.Met) > 0 {
		text = strings.Join(m.Met, ", ") + " matched, " + m.Missed + " did not: "
	}
	if m.Value == nil {
		return text + "the device has none"
	}
	return text + "it is " + strconv.Quote(*m.Value)
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
