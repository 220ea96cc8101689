package explain

import (
	"fmt"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Brokers returns the verdict on the brokers of a Configuration: as many run, or have completed, as
// it wants.
func Brokers(s *Snapshot, c *akriv0.Configuration) Verdict {
	return s.brokersLink(c).of(SubjectBrokers, c.Namespace, c.Name)
}

func (s *Snapshot) brokersLink(c *akriv0.Configuration) Link {
	instances := s.InstancesOf(c)
	result := s.brokers(c, instances)[0]
	invalid := target{Snapshot: s, configuration: c}.firstCause(LinkAccepted)
	if invalid != nil && invalid.ID == SpecInvalid && condition(c, akriv0.ConditionBrokersRunning).Reason == akriv0.ReasonInvalidSpec {
		return broken(LinkCreated, *invalid)
	}
	if result.State == Skipped {
		return result
	}

	wanted, running := 0, 0
	for _, instance := range instances {
		want := wantedBrokers(c, instance)
		runs := 0
		for _, link := range s.brokerStates(instance) {
			if link.State == Works {
				runs++
			}
			result = worst(result, link)
		}
		wanted, running = wanted+want, running+min(want, runs)
	}

	message := fmt.Sprintf("%d of %d brokers run or have completed", running, wanted)
	unusable := s.unusable(c, instances)
	switch {
	case running >= wanted && unusable != nil:
		result = *unusable
	case running >= wanted:
		return works(LinkContainer, message)
	case result.State == Works:
		result = s.missingBroker(c, instances)
	}
	if running > 0 && result.State == Broken {
		result.State = Partly
	}
	if wanted > 0 {
		result.Message = message
	}
	return result
}

// unusable returns the state of the worst device that no broker can use because it has no node or
// no slot, or nil.
func (s *Snapshot) unusable(c *akriv0.Configuration, instances []*akriv0.Instance) *Link {
	var found *Link
	for _, instance := range instances {
		if wantedBrokers(c, instance) > 0 {
			continue
		}
		link := s.seenLink(instance)
		if found == nil || severity[link.State] > severity[found.State] {
			found = &link
		}
	}
	return found
}

// wantedBrokers returns the number of brokers that broker-controller creates for a device.
func wantedBrokers(c *akriv0.Configuration, instance *akriv0.Instance) int {
	if c.Spec.BrokerSpec.BrokerJobSpec != nil {
		return 1
	}
	return min(int(instance.Spec.Capacity), len(instance.Spec.Nodes))
}

// brokerStates returns the states of the brokers of a device that exist. A Job that has completed
// is one, also if its Pods do not exist any more.
func (s *Snapshot) brokerStates(instance *akriv0.Instance) []Link {
	var links []Link
	for i := range s.Jobs {
		if job := &s.Jobs[i]; isOwnedBy(job, instance) && jobCompleted(job) {
			links = append(links, works(LinkContainer, "the Job has completed"))
		}
	}
	for _, pod := range s.BrokersOf(instance) {
		if pod.DeletionTimestamp == nil && (len(links) == 0 || pod.Status.Phase != corev1.PodSucceeded) {
			links = append(links, chain(s.podLinks(pod)))
		}
	}
	return links
}

func isOwnedBy(object metav1.Object, instance *akriv0.Instance) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.Kind == "Instance" && owner.Name == instance.Name && object.GetNamespace() == instance.Namespace
}

func jobCompleted(job *batchv1.Job) bool {
	for _, condition := range job.Status.Conditions {
		if condition.Type == batchv1.JobComplete && condition.Status == corev1.ConditionTrue {
			return true
		}
	}
	return false
}

// missingBroker returns why there are fewer brokers than wanted although none has a problem.
func (s *Snapshot) missingBroker(c *akriv0.Configuration, instances []*akriv0.Instance) Link {
	stated := condition(c, akriv0.ConditionBrokersRunning)
	if stated.Status == metav1.ConditionFalse {
		return broken(LinkCreated, Cause{
			ID: PodFailed, Message: stated.Message, Remedies: []Remedy{describeConfiguration("Read the Events of the Configuration.", c)},
		})
	}

	since := []metav1.Time{stated.LastTransitionTime}
	for _, instance := range instances {
		since = append(since, instance.CreationTimestamp)
		for _, pod := range s.BrokersOf(instance) {
			since = append(since, pod.CreationTimestamp)
		}
	}
	return s.expectBroker(stated.Message, latest(since...))
}

// expectBroker returns the link of a broker that broker-controller creates.
func (s *Snapshot) expectBroker(message string, since metav1.Time) Link {
	link := s.expect(LinkCreated, message, expectation{
		Wait:  awaits("a broker", since, writeTimeout),
		cause: Cause{Remedies: []Remedy{s.readServiceLogs("Read the logs of broker-controller.", brokerController)}},
	})
	if controller := s.componentLink(brokerController); link.State == Broken && controller.State == Broken {
		controller.Name = link.Name
		return controller
	}
	return link
}
