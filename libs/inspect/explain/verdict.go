package explain

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Kinds of subjects that are not kinds of Kubernetes.
const (
	// SubjectDevices are the devices of a Configuration.
	SubjectDevices = "Devices"
	// SubjectBrokers are the brokers of a Configuration.
	SubjectBrokers = "Brokers"
)

// Verdict states whether a subject works. All users of this package derive it from the same facts,
// so that conditions, metrics, kubectl akri and the console agree.
type Verdict struct {
	Subject akriv0.Subject `json:"subject"`
	State   State          `json:"state"`
	Message string         `json:"message"`
	// Causes are those of a subject that is Broken or Partly, the most important first.
	Causes []Cause `json:"causes,omitempty"`
	// Wait is that of a subject that is Waiting.
	Wait *akriv0.Wait `json:"wait,omitempty"`
}

// Verdicts returns the verdicts on all subjects of which Akri writes or shows one.
func Verdicts(s *Snapshot) []Verdict {
	verdicts := append(ServiceVerdicts(s), Handlers(s)...)
	for i := range s.Nodes {
		verdicts = append(verdicts, Node(s, &s.Nodes[i]))
	}
	for i := range s.Configurations {
		c := &s.Configurations[i]
		verdicts = append(verdicts, Devices(s, c), Brokers(s, c))
	}
	for i := range s.Instances {
		verdicts = append(verdicts, Device(s, &s.Instances[i]))
	}
	for i := range s.Pods {
		if pod := &s.Pods[i]; !IsAkri(pod) {
			verdicts = append(verdicts, Pod(s, pod.Namespace, pod.Name).Verdicts...)
		}
	}
	return verdicts
}

// Summary returns the message with the first cause.
func (v Verdict) Summary() string {
	if len(v.Causes) == 0 {
		return v.Message
	}
	cause := string(v.Causes[0].ID) + ": " + v.Causes[0].Message
	if v.Message == v.Causes[0].Message {
		return cause
	}
	return v.Message + "; " + cause
}

// Since returns since when the subject is in its state, or zero if that is not known.
func (s *Snapshot) Since(v Verdict) metav1.Time {
	switch {
	case v.Wait != nil:
		return v.Wait.Since
	case len(v.Causes) > 0 && v.Causes[0].Since != nil:
		return *v.Causes[0].Since
	}

	namespace, name := v.Subject.Namespace, v.Subject.Name
	switch v.Subject.Kind {
	case SubjectDevices, SubjectBrokers:
		if c := s.indexed().configurations[namespace+"/"+name]; c != nil {
			return notTrueSince(condition(c, conditionOf[v.Subject.Kind]))
		}
	case "Node":
		if node := s.nodeNamed(name); node != nil && !NodeReady(node) {
			return readySince(node)
		}
	case "Pod":
		if pod := Find(s.Pods, namespace, name); pod != nil && !PodReady(pod) {
			return podSince(pod, corev1.PodReady)
		}
	}
	return metav1.Time{}
}

// conditionOf has the conditions of a Configuration that state a verdict.
var conditionOf = map[string]string{SubjectDevices: akriv0.ConditionDevicesWorking, SubjectBrokers: akriv0.ConditionBrokersWorking}

func notTrueSince(stated metav1.Condition) metav1.Time {
	if stated.Status == metav1.ConditionTrue {
		return metav1.Time{}
	}
	return stated.LastTransitionTime
}

// BySeverity orders verdicts: what does not work comes first.
func BySeverity(a, b Verdict) int { return severity[b.State] - severity[a.State] }

// of returns the verdict on the subject that a link, or several, have led to.
func (l Link) of(kind, namespace, name string) Verdict {
	return Verdict{Subject: *subject(kind, namespace, name), State: l.State, Message: l.Message, Causes: l.Causes, Wait: l.Wait}
}

// severity orders the states of links that depend on each other: the worst decides.
var severity = map[State]int{Skipped: 0, Works: 1, OutOfService: 2, NoneFound: 3, Waiting: 4, Partly: 5, Broken: 6}

// worst returns the link with the worse state. Of two with the same state, the first has
// precedence.
func worst(a, b Link) Link {
	if severity[b.State] > severity[a.State] {
		return b
	}
	return a
}

// chain returns the state of a chain of links: that of the first broken link, or the worst.
func chain(links []Link) Link {
	if broken := firstBroken(links); broken != nil {
		return *broken
	}
	result := Link{State: Skipped}
	for _, link := range links {
		if link.State == Works && result.State == Works {
			result = link // the end of the chain
		} else if link.State != Skipped {
			result = worst(result, link)
		}
	}
	return result
}

// group returns the state of several things that work independently of each other: the worst one,
// or Partly if others work. The message counts those that work.
func group(noun string, links []Link) Link {
	working := 0
	result := links[0]
	for _, link := range links {
		if link.State == Works {
			working++
		}
		result = worst(result, link)
	}
	if working > 0 && result.State == Broken {
		result.State = Partly
	}
	if working > 0 {
		result.Message = fmt.Sprintf("%d of %d %ss work", working, len(links), noun)
	}
	return result
}
