package explain

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// brokers returns the links of the brokers of the Instances, which belong to one Configuration.
func (s *Snapshot) brokers(c *akriv0.Configuration, instances []*akriv0.Instance) []Link {
	switch {
	case c.Spec.BrokerSpec == nil:
		return []Link{skipped(LinkCreated, "the Configuration has no brokerSpec: Pods of users request the devices")}
	case len(instances) == 0:
		return []Link{skipped(LinkCreated, "no device is found")}
	case !s.readable("pods"):
		return []Link{skipped(LinkCreated, "not checked: you may not list Pods")}
	}
	var pods []*corev1.Pod
	for _, instance := range instances {
		pods = append(pods, s.BrokersOf(instance)...)
	}
	created := s.createdLink(c, instances, pods)
	if len(pods) == 0 {
		return []Link{created}
	}
	links := s.combined(pods)
	links[0] = created
	return links
}

// createdLink evaluates whether the API server accepts the brokers.
func (s *Snapshot) createdLink(c *akriv0.Configuration, instances []*akriv0.Instance, pods []*corev1.Pod) Link {
	running := condition(c, akriv0.ConditionBrokersRunning)
	t := target{Snapshot: s, configuration: c, brokers: pods}
	if running.Status == metav1.ConditionFalse && running.Reason == akriv0.ReasonBrokerRefused {
		t.refusal = running.Message
	}

	created := c.CreationTimestamp
	for _, instance := range instances {
		created = latest(created, instance.CreationTimestamp)
	}
	wanted := func(instance *akriv0.Instance) bool { return wantedBrokers(c, instance) > 0 }
	message := Plural(len(pods), "broker Pod")
	switch cause := t.firstCause(LinkCreated); {
	case cause != nil && len(pods) > 0:
		return partly(LinkCreated, message+"; "+cause.Message, *cause)
	case cause != nil:
		return broken(LinkCreated, *cause)
	case len(pods) > 0:
		return works(LinkCreated, message)
	case !slices.ContainsFunc(instances, wanted):
		unusable := *s.unusable(c, instances)
		unusable.Name = LinkCreated
		return unusable
	default:
		return s.expectBroker(running.Message, latest(created, running.LastTransitionTime))
	}
}

// combined returns the links of several Pods as one chain: the worst state of each link.
func (s *Snapshot) combined(pods []*corev1.Pod) []Link {
	all := s.podLinks(pods[0])
	for _, pod := range pods[1:] {
		for i, link := range s.podLinks(pod) {
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
