package explain

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/grace"
)

// State of a link, and verdict on a subject such as a device.
type State string

const (
	// Works means that it works.
	Works State = "Works"
	// Partly means that it works, but not everywhere.
	Partly State = "Partly"
	// Waiting means that it may work soon. A Wait states since when, and when it counts as broken.
	Waiting State = "Waiting"
	// Broken means that it does not work.
	Broken State = "Broken"
	// NoneFound means that no device matches, and that none is expected.
	NoneFound State = "NoneFound"
	// OutOfService means that it does not work because an administrator has cordoned its nodes.
	OutOfService State = "OutOfService"
	// Skipped means that it is not reached, not needed or not known.
	Skipped State = "Skipped"
)

// States are all states.
var States = []State{Works, Partly, Waiting, Broken, NoneFound, OutOfService, Skipped}

var words = map[State]string{
	Works: "works", Partly: "PARTLY", Waiting: "waiting", Broken: "BROKEN",
	NoneFound: "none found", OutOfService: "out of service", Skipped: "-",
}

// Word returns the text that users see.
func (s State) Word() string { return words[s] }

// Link is one step between the Discovery Handler and the container.
type Link struct {
	Name    string `json:"name"`
	State   State  `json:"state"`
	Message string `json:"message"`
	// Causes are those of a link that does not work, the most important first. Those of a link that
	// works are only for information.
	Causes []Cause `json:"causes,omitempty"`
	// Wait is that of a link that is Waiting. Without an Until, it can last for any time.
	Wait *akriv0.Wait `json:"wait,omitempty"`
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

// Explanation is the chain of one object, with the verdicts on its parts.
type Explanation struct {
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	Verdicts  []Verdict `json:"verdicts,omitempty"`
	Links     []Link    `json:"links"`
}

// Broken returns the first broken link, or nil.
func (e *Explanation) Broken() *Link { return firstBroken(e.Links) }

func firstBroken(links []Link) *Link {
	for i := range links {
		if links[i].State == Broken {
			return &links[i]
		}
	}
	return nil
}

// Decisive returns the first broken link or, if there is none, the one where no device was found or
// where a cause is waited for, or nil.
func (e *Explanation) Decisive() *Link {
	if broken := firstBroken(e.Links); broken != nil {
		return broken
	}
	decisive := func(l Link) bool { return l.State == NoneFound || l.State == Waiting && len(l.Causes) > 0 }
	if i := slices.IndexFunc(e.Links, decisive); i >= 0 {
		return &e.Links[i]
	}
	return nil
}

// Cause returns the cause of the decisive link, or nil.
func (e *Explanation) Cause() *Cause {
	if link := e.Decisive(); link != nil && len(link.Causes) > 0 {
		return &link.Causes[0]
	}
	return nil
}

func works(name, message string) Link   { return Link{Name: name, State: Works, Message: message} }
func skipped(name, message string) Link { return Link{Name: name, State: Skipped, Message: message} }

func broken(name string, causes ...Cause) Link {
	return Link{Name: name, State: Broken, Message: causes[0].Message, Causes: causes}
}

func partly(name, message string, causes ...Cause) Link {
	return Link{Name: name, State: Partly, Message: message, Causes: causes}
}

// expectation is what a link waits for.
type expectation struct {
	grace.Wait

	// cause of the link if the wait is over. Without an ID it is Overdue. The link has a cause that
	// an Event states from the beginning.
	cause Cause
}

// awaits returns the Wait for something, for example "a node reports".
func awaits(awaited string, since metav1.Time, within time.Duration) grace.Wait {
	return grace.Wait{Awaited: awaited, Since: since.Time, For: within, Then: "it counts as broken"}
}

// expect returns a link without a result, which is broken if what it expects is overdue.
func (s *Snapshot) expect(name, message string, e expectation) Link {
	if s.Sightings != nil {
		e.Since = s.Sightings.of(sighting{name, message, e.Since}, s.now())
	}
	if e.Over(s.now()) {
		return broken(name, overdue(message, e))
	}

	wait := akriv0.Wait{Awaited: e.Awaited, Since: metav1.NewTime(e.Since), Until: metav1.NewTime(e.Until()), Then: e.Then}
	link := Link{Name: name, State: Waiting, Message: message, Wait: &wait}
	if e.cause.byEvent {
		link.Causes = []Cause{e.cause}
	}
	return link
}

func (s *Snapshot) now() time.Time {
	if s.Now.IsZero() {
		return time.Now()
	}
	return s.Now
}

// latest returns the last of the times.
func latest(times ...metav1.Time) (last metav1.Time) {
	for _, time := range times {
		if last.Before(&time) {
			last = time
		}
	}
	return last
}

// relax returns the links with Partly instead of Broken. It is for links whose result exists: the
// devices stay when a handler goes offline, for example.
func relax(links []Link) []Link {
	for i := range links {
		if links[i].State == Broken {
			links[i].State = Partly
		}
	}
	return links
}
