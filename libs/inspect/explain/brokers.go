package explain

import (
	"fmt"
	"strings"

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
	created := createdLink(c, len(pods))
	if len(pods) == 0 {
		return []Link{created}
	}
	links := s.combined(pods)
	links[0] = created
	return links
}

// createdLink evaluates whether the API server accepts the brokers.
func createdLink(c *akriv0.Configuration, pods int) Link {
	running := condition(c, akriv0.ConditionBrokersRunning)
	message := plural(pods, "broker Pod")
	if running.Status == metav1.ConditionFalse && strings.Contains(running.Message, akriv0.ReasonBrokerRefused+": ") {
		cause := refused(c, running.Message)
		if pods > 0 {
			return partial(LinkCreated, message+"; "+cause.Message, cause)
		}
		return broken(LinkCreated, cause)
	}
	if pods > 0 {
		return ok(LinkCreated, message)
	}
	if running.Status == metav1.ConditionFalse {
		return broken(LinkCreated, Cause{ID: PodFailed, Message: running.Message, Remedies: []Remedy{{
			Text: "Read the Events of the Configuration.", Command: fmt.Sprintf("kubectl describe configuration.akri.sh %s --namespace %s", c.Name, c.Namespace),
		}}})
	}
	return pending(LinkCreated, running.Message)
}

// refused returns the cause for the API server's message.
func refused(c *akriv0.Configuration, message string) Cause {
	cause := Cause{ID: BrokerRefused, Message: message, Remedies: []Remedy{edit(c)}}
	switch {
	case strings.Contains(message, "violates PodSecurity"):
		cause.ID = PodSecurity
		cause.Remedies = append(cause.Remedies, Remedy{
			Text:    "Or allow such Pods in the namespace.",
			Command: fmt.Sprintf("kubectl label namespace %s --overwrite pod-security.kubernetes.io/enforce=privileged", c.Namespace),
		})
	case strings.Contains(message, "admission webhook"):
		cause.ID = WebhookRefused
		cause.Remedies = append(cause.Remedies, Remedy{
			Text: "Or exclude the namespace from the webhook that the message names.", Command: "kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations",
		})
	case strings.Contains(message, "exceeded quota"):
		cause.ID = QuotaExceeded
		cause.Remedies = []Remedy{{
			Text: "Raise the quota, or delete what uses it.", Command: fmt.Sprintf("kubectl describe resourcequota --namespace %s", c.Namespace),
		}}
	}
	return cause
}

// combined returns the links of several Pods as one chain: the worst state of each link.
func (s *Snapshot) combined(pods []*corev1.Pod) []Link {
	var all []Link
	for i, pod := range pods {
		links := s.podLinks(pod)
		if i == 0 {
			all = links
			continue
		}
		for j := range links {
			all[j] = worst(all[j], links[j])
		}
	}
	if len(pods) > 1 {
		for i := range all {
			if all[i].State == OK {
				all[i].Message = "all " + plural(len(pods), "Pod")
			}
		}
	}
	return all
}

// worst returns the link with the worse state. Of two broken links, the first has precedence.
func worst(a, b Link) Link {
	order := map[State]int{OK: 0, Skipped: 1, Pending: 2, Partial: 3, Broken: 4}
	if order[b.State] > order[a.State] {
		return b
	}
	return a
}
