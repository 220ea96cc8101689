// Package values holds the latest value of each monitored node, in a form of limited size.
package values

import (
	"sync"
	"time"

	"github.com/gopcua/opcua/ua"
)

// Value is the latest value of a node, as the broker serves and publishes it.
type Value struct {
	// Name of the node in the settings.
	Name string `json:"name"`
	// NodeID is the node id in the settings.
	NodeID string `json:"nodeId"`
	// Status is the name of the OPC UA status code, such as Good or BadNodeIDUnknown.
	Status string `json:"status"`
	// Quality is good, uncertain or bad, the severity of the status code.
	Quality Quality `json:"quality"`
	// Error is the reason of a value that the server does not serve.
	Error string `json:"error,omitempty"`
	// Type of the value, such as Double. Arrays have the type of their elements.
	Type string `json:"type,omitempty"`
	// Value is a JSON value. It is absent while the quality is bad.
	Value any `json:"value,omitempty"`
	// Truncated states that the value of the server was larger than the limits.
	Truncated bool `json:"truncated,omitempty"`
	// SourceTimestamp is when the device measured the value, ServerTimestamp when the server got
	// it.
	SourceTimestamp *time.Time `json:"sourceTimestamp,omitempty"`
	ServerTimestamp *time.Time `json:"serverTimestamp,omitempty"`

	// number is the value of a number or a boolean.
	number *float64
}

// Number returns the value of a number, and 0 or 1 for a boolean. It returns false for other
// values, and while the quality is bad.
func (v Value) Number() (float64, bool) {
	if v.number == nil {
		return 0, false
	}
	return *v.number, true
}

// Store holds the latest values. Its nodes never change.
type Store struct {
	changed func(Value)

	mu     sync.Mutex
	values []Value
}

// NewStore returns a Store of nodes without values. changed gets each new value and must not block.
func NewStore(nodes []Node, changed func(Value)) *Store {
	s := &Store{changed: changed}
	for _, node := range nodes {
		s.values = append(s.values, describe(node, ua.StatusBadWaitingForInitialData, ""))
	}
	return s
}

// Node is a node to monitor.
type Node struct {
	// Name is the name in metrics, topics and responses.
	Name string
	// ID is ns=INDEX;KIND=IDENTIFIER, or nsu=URI;KIND=IDENTIFIER.
	ID string
	// Setting is the setting that names the node, for messages.
	Setting string
}

// All returns the values of all nodes, in the order of the settings.
func (s *Store) All() []Value {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Value(nil), s.values...)
}

// Get returns the value of a node by its name.
func (s *Store) Get(name string) (Value, bool) {
	for _, value := range s.All() {
		if value.Name == name {
			return value, true
		}
	}
	return Value{}, false
}

// Set stores the value that the server sent for the node with an index.
func (s *Store) Set(index int, node Node, data *ua.DataValue) { s.set(index, convert(node, data)) }

// SetBad stores why the server does not serve the node with an index.
func (s *Store) SetBad(index int, node Node, status ua.StatusCode, reason string) {
	s.set(index, describe(node, status, reason))
}

// set ignores a value that is the one before, such as the same failure again.
func (s *Store) set(index int, value Value) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before := s.values[index]; value.Quality == Bad && before.Status == value.Status && before.Error == value.Error {
		return
	}
	s.values[index] = value
	s.changed(value)
}

// describe returns a Value without a value.
func describe(node Node, status ua.StatusCode, reason string) Value {
	return Value{Name: node.Name, NodeID: node.ID, Status: statusName(status), Quality: qualityOf(status), Error: reason}
}
