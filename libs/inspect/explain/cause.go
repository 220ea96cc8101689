package explain

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/trial"
)

// CauseID identifies a cause for programs. It does not change between versions.
type CauseID string

// Cause is a known reason why a link does not work.
type Cause struct {
	ID CauseID `json:"id"`
	// Subject is the object that has the problem, if it is not the one that is explained.
	Subject *akriv0.Subject `json:"subject,omitempty"`
	// Since is when the problem began, if that is known.
	Since   *metav1.Time `json:"since,omitempty"`
	Message string       `json:"message"`
	// Evidence is what was found instead, one fact each.
	Evidence []string `json:"evidence,omitempty"`
	// Closest are the devices that come closest to the details, if NothingMatched and if the caller
	// has asked the handlers.
	Closest []trial.Group `json:"closest,omitempty"`
	// Wait states what Akri does later if the problem remains.
	Wait *akriv0.Wait `json:"wait,omitempty"`
	// Remedies are alternatives or steps, in the order in which to try them.
	Remedies []Remedy `json:"remedies,omitempty"`

	// byEvent means that only an Event states the cause. Many users may write Events, so the link
	// is not Broken until the time is over that its objects give it. Rules with such causes come
	// after those that read objects.
	byEvent bool
}

// Remedy is what a user can do.
type Remedy struct {
	Text string `json:"text"`
	// Command to type. Words in capitals are to be replaced.
	Command string `json:"command,omitempty"`
	// Interrupts are the objects that the command stops or restarts.
	Interrupts []akriv0.Subject `json:"interrupts,omitempty"`
}

// Interrupted names the objects that the command stops or restarts.
func (r Remedy) Interrupted() (names []string) {
	for _, object := range r.Interrupts {
		names = append(names, object.Kind+" "+strings.TrimPrefix(object.Namespace+"/"+object.Name, "/"))
	}
	return names
}

// A rule finds one cause of a link. The file cause_<id>.go has the rules of a cause: everything
// that is known about it stands there. A cause with rules for several links registers each of them.
type rule struct {
	id   CauseID
	link string
	// rank orders the causes of a link. The lowest is shown first. No two rules of a link have the
	// same rank.
	rank int
	find finder
}

// finder reports a cause, once for each object that has the problem. It need not set the ID.
type finder func(t target, report func(Cause))

// target is what is explained: a Configuration with its Instances, devices on a node, a Pod, or the
// services. Its links and their rules use the fields of that. A link sets what else its rules need.
type target struct {
	*Snapshot

	configuration *akriv0.Configuration
	instances     []*akriv0.Instance
	pod           *corev1.Pod
	services      []Service
	// node is the only node that is examined, or empty for all.
	node string
	// brokers are the broker Pods that exist.
	brokers []*corev1.Pod
	// refusal is the message of the scheduler, the kubelet or the API server that refuses a Pod.
	refusal string
	// unheld is what the Pod requests and has no slot of. unheldClaim means that it is a claim.
	unheld      string
	unheldClaim bool
}

var rules = map[string][]rule{}

func register(added ...rule) {
	for _, r := range added {
		rules[r.link] = append(rules[r.link], r)
		slices.SortFunc(rules[r.link], func(a, b rule) int { return cmp.Compare(a.rank, b.rank) })
	}
}

// causes returns the causes of the link, the most important first.
func (t target) causes(link string) []Cause {
	var found []Cause
	for _, r := range rules[link] {
		r.find(t, func(cause Cause) {
			cause.ID = cmp.Or(cause.ID, r.id)
			found = append(found, cause)
		})
	}
	return found
}

// firstCause returns the most important cause of the link, or nil. It is for links of which a
// further cause usually follows from the first one.
func (t target) firstCause(link string) *Cause {
	if causes := t.causes(link); len(causes) > 0 {
		return &causes[0]
	}
	return nil
}
