package explain

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// brokerLinks returns the links of the brokers of the Instances, which belong to the Configuration.
func (t target) brokerLinks() []Link {
	switch {
	case t.configuration.Spec.BrokerSpec == nil:
		return []Link{skipped(LinkCreated, "the Configuration has no brokerSpec: Pods of users request the devices")}
	case len(t.instances) == 0:
		return []Link{skipped(LinkCreated, "no device is found")}
	case !t.readable("pods"):
		return []Link{skipped(LinkCreated, "not checked: you may not list Pods")}
	}
	for _, instance := range t.instances {
		t.brokers = append(t.brokers, t.BrokersOf(instance)...)
	}
	created := t.createdLink()
	if len(t.brokers) == 0 {
		return []Link{created}
	}
	links := combined(t.Snapshot, t.brokers)
	links[0] = created
	return links
}

// createdLink evaluates whether the API server accepts the brokers.
func (t target) createdLink() Link {
	running := condition(t.configuration, akriv0.ConditionBrokersRunning)
	if running.Status == metav1.ConditionFalse && running.Reason == akriv0.ReasonBrokerRefused {
		t.refusal = running.Message
	}

	created := t.configuration.CreationTimestamp
	for _, instance := range t.instances {
		created = latest(created, instance.CreationTimestamp)
	}
	wanted := func(instance *akriv0.Instance) bool { return wantedBrokers(t.configuration, instance) > 0 }
	message := Plural(len(t.brokers), "broker Pod")
	switch cause := t.firstCause(LinkCreated); {
	case cause != nil && len(t.brokers) > 0:
		return partly(LinkCreated, message+"; "+cause.Message, *cause)
	case cause != nil:
		return broken(LinkCreated, *cause)
	case len(t.brokers) > 0:
		return works(LinkCreated, message)
	case !slices.ContainsFunc(t.instances, wanted):
		unusable := *t.unusable()
		unusable.Name = LinkCreated
		return unusable
	default:
		return t.expectBroker(running.Message, latest(created, running.LastTransitionTime))
	}
}

// combined returns the links of several Pods as one chain: the worst state of each link.
func combined(s *Snapshot, pods []*corev1.Pod) []Link {
	all := target{Snapshot: s, pod: pods[0]}.podLinks()
	for _, pod := range pods[1:] {
		for i, link := range (target{Snapshot: s, pod: pod}).podLinks() {
			all[i] = worst(all[i], link)
		}
	}
	for i := range all {
		if all[i].State == Works && len(pods) > 1 {
			all[i].Message = "all " + Plural(len(pods), "Pod")
		}
	}
	return all
}
