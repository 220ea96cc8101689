package plan

// Action is what to do with a Service.
type Action int

// Actions.
const (
	Keep Action = iota
	Create
	Replace
	Delete
)

// ForService compares a desired Service with the existing one. An existing Service without a hash
// is kept.
func ForService(desired, exists bool, desiredHash, existingHash string) Action {
	switch {
	case desired && !exists:
		return Create
	case !desired && exists:
		return Delete
	case desired && existingHash != "" && existingHash != desiredHash:
		return Replace
	}
	return Keep
}

// Brokers are the brokers that a Service selects.
type Brokers struct {
	// Running brokers.
	Running int
	// Active brokers have neither failed nor succeeded.
	Active int
	// Expected means that a broker will be created even if none is active. The Service keeps its
	// address until then.
	Expected bool
}

// NeedsService reports whether a Service should exist: from the first running broker until the last
// one is gone.
func NeedsService(exists bool, brokers Brokers) bool {
	return brokers.Running > 0 || exists && (brokers.Active > 0 || brokers.Expected)
}
