package explain

// State of a Link.
type State string

const (
	// OK means that the link works.
	OK State = "OK"
	// Partial means that the link works, but not everywhere.
	Partial State = "Partial"
	// Broken means that the link does not work.
	Broken State = "Broken"
	// Pending means that the link may work soon.
	Pending State = "Pending"
	// Skipped means that the link is not reached, or not needed.
	Skipped State = "Skipped"
)

// Link is one step between the Discovery Handler and the container.
type Link struct {
	Name    string `json:"name"`
	State   State  `json:"state"`
	Message string `json:"message"`
	// Causes are those of a link that is Broken or Partial, the most important first.
	Causes []Cause `json:"causes,omitempty"`
}

// Names of links, in their order.
const (
	LinkServices  = "Akri runs"
	LinkHandler   = "handler registered"
	LinkAccepted  = "Configuration accepted"
	LinkActive    = "nodes report"
	LinkFound     = "devices found"
	LinkInstances = "Instances"
	LinkResource  = "resource on the node"
	LinkCreated   = "Pod created"
	LinkScheduled = "Pod scheduled"
	LinkAdmitted  = "Pod admitted"
	LinkSlot      = "slot held"
	LinkContainer = "containers run"
)

// Explanation is the chain of one object.
type Explanation struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	Links     []Link `json:"links"`
}

// Broken returns the first broken link, or nil.
func (e *Explanation) Broken() *Link {
	for i := range e.Links {
		if e.Links[i].State == Broken {
			return &e.Links[i]
		}
	}
	return nil
}

// Cause returns the cause of the first broken link, or nil.
func (e *Explanation) Cause() *Cause {
	if link := e.Broken(); link != nil && len(link.Causes) > 0 {
		return &link.Causes[0]
	}
	return nil
}

func ok(name, message string) Link      { return Link{Name: name, State: OK, Message: message} }
func pending(name, message string) Link { return Link{Name: name, State: Pending, Message: message} }
func skipped(name, message string) Link { return Link{Name: name, State: Skipped, Message: message} }

func broken(name string, causes ...Cause) Link {
	return Link{Name: name, State: Broken, Message: causes[0].Message, Causes: causes}
}

func partial(name, message string, causes ...Cause) Link {
	return Link{Name: name, State: Partial, Message: message, Causes: causes}
}

// relax returns the links with Partial instead of Broken. It is for links whose result exists: the
// devices stay when a handler goes offline, for example.
func relax(links []Link) []Link {
	for i := range links {
		if links[i].State == Broken {
			links[i].State = Partial
		}
	}
	return links
}
