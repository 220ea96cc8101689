package explain

import "strings"

// PodSecurity means that the namespace's Pod Security level refuses the broker.
const PodSecurity CauseID = "PodSecurity"

// WebhookRefused means that an admission webhook of the cluster refuses the broker.
const WebhookRefused CauseID = "WebhookRefused"

// QuotaExceeded means that a ResourceQuota refuses the broker.
const QuotaExceeded CauseID = "QuotaExceeded"

// BrokerRefused means that the API server refuses the broker for another reason.
const BrokerRefused CauseID = "BrokerRefused"

func init() {
	register(
		rule{PodSecurity, LinkCreated, 0, refusedWith("violates PodSecurity", func(t target) []Remedy {
			return []Remedy{edit(t.configuration), remedy("Or allow such Pods in the namespace.",
				"kubectl label namespace %s --overwrite pod-security.kubernetes.io/enforce=privileged", t.configuration.Namespace)}
		})},
		rule{WebhookRefused, LinkCreated, 1, refusedWith("admission webhook", func(t target) []Remedy {
			return []Remedy{edit(t.configuration), remedy("Or exclude the namespace from the webhook that the message names.",
				"kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations")}
		})},
		rule{QuotaExceeded, LinkCreated, 2, refusedWith("exceeded quota", func(t target) []Remedy {
			return []Remedy{remedy("Raise the quota, or delete what uses it.",
				"kubectl describe resourcequota --namespace %s", t.configuration.Namespace)}
		})},
		rule{BrokerRefused, LinkCreated, 3, refusedWith("", func(t target) []Remedy {
			if !isOfLimitRange(t.refusal) {
				return correct(t)
			}
			return []Remedy{
				remedy("Compare the LimitRange with the resources of the brokers.", "kubectl describe limitrange --namespace %s", t.configuration.Namespace),
				edit(t.configuration),
			}
		})},
	)
}

// refusedWith finds a message of the API server, which has no machine-readable reason for them.
func refusedWith(text string, remedies func(t target) []Remedy) finder {
	return func(t target, report func(Cause)) {
		if t.refusal != "" && strings.Contains(t.refusal, text) {
			report(Cause{Message: t.refusal, Remedies: remedies(t)})
		}
	}
}

// isOfLimitRange reports whether the API server refuses a Pod because of a LimitRange.
func isOfLimitRange(message string) bool {
	return strings.Contains(message, "usage per Container") || strings.Contains(message, "usage per Pod") || strings.Contains(message, "limit to request ratio")
}
