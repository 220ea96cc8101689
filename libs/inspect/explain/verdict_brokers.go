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
	t := target{Snapshot: s, configuration: c, instances: s.InstancesOf(c)}
	return t.brokersLink().of(SubjectBrokers, c.Namespace, c.Name)
}

func (t target) brokersLink() Link {
	result := t.brokerLinks()[0]
	invalid := t.firstCause(LinkAccepted)
	if invalid != nil && invalid.ID == SpecInvalid && condition(t.configuration, akriv0.ConditionBrokersRunning).Reason == akriv0.ReasonInvalidSpec {
		return broken(LinkCreated, *invalid)
	}
	if result.State == Skipped {
		return result
	}

	wanted, running := 0, 0
	for _, instance := range t.instances {
		want := wantedBrokers(t.configuration, instance)
		runs := 0
		for _, link := range brokerStates(t.Snapshot, instance) {
			if link.State == Works {
				runs++
			}
			result = worst(result, link)
		}
		wanted, running = wanted+want, running+min(want, runs)
	}

	message := fmt.Sprintf("%d of %d brokers run or have completed", running, wanted)
	unusable := t.unusable()
	switch {
	case running >= wanted && unusable != nil:
		result = *unusable
	case running >= wanted:
		return works(LinkContainer, message)
	case result.State == Works:
		result = t.missingBroker()
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
func (t target) unusable() *Link {
	var found *Link
	for _, instance := range t.instances {
		if wantedBrokers(t.configuration, instance) > 0 {
			continue
		}
		link := t.seenLink(instance)
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
func brokerStates(s *Snapshot, instance *akriv0.Instance) []Link {
	var links []Link
	for i := range s.Jobs {
		if job := &s.Jobs[i]; isOwnedBy(job, instance) && jobCompleted(job) {
			links = append(links, works(LinkContainer, "the Job has completed"))
		}
	}
	for _, pod := range s.BrokersOf(instance) {
		if pod.DeletionTimestamp == nil && (len(links) == 0 || pod.Status.Phase != corev1.PodSucceeded) {
			links = append(links, chain(target{Snapshot: s, pod: pod}.podLinks()))
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
func (t target) missingBroker() Link {
	stated := condition(t.configuration, akriv0.ConditionBrokersRunning)
	if stated.Status == metav1.ConditionFalse {
		return broken(LinkCreated, Cause{
			ID: PodFailed, Message: stated.Message, Remedies: []Remedy{describeConfiguration("Read the Events of the Configuration.", t.configuration)},
		})
	}

	since := []metav1.Time{stated.LastTransitionTime}
	for _, instance := range t.instances {
		since = append(since, instance.CreationTimestamp)
		for _, pod := range t.BrokersOf(instance) {
			since = append(since, pod.CreationTimestamp)
		}
	}
	return t.expectBroker(stated.Message, latest(since...))
}

// expectBroker returns the link of a broker that broker-controller creates.
func (t target) expectBroker(message string, since metav1.Time) Link {
	link := t.expect(LinkCreated, message, expectation{
		Wait:  awaits("a broker", since, writeTimeout),
		cause: Cause{Remedies: []Remedy{t.readServiceLogs("Read the logs of broker-controller.", brokerController)}},
	})
	if controller := t.componentLink(brokerController); link.State == Broken && controller.State == Broken {
		controller.Name = link.Name
		return controller
	}
	return link
}
