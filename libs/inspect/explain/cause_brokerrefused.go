package explain

import (
	"fmt"
	"strings"
)

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
			return []Remedy{edit(t.configuration), {
				Text:    "Or allow such Pods in the namespace.",
				Command: fmt.Sprintf("kubectl label namespace %s --overwrite pod-security.kubernetes.io/enforce=privileged", t.configuration.Namespace),
			}}
		})},
		rule{WebhookRefused, LinkCreated, 1, refusedWith("admission webhook", func(t target) []Remedy {
			return []Remedy{edit(t.configuration), {
				Text: "Or exclude the namespace from the webhook that the message names.", Command: "kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations",
			}}
		})},
		rule{QuotaExceeded, LinkCreated, 2, refusedWith("exceeded quota", func(t target) []Remedy {
			return []Remedy{{Text: "Raise the quota, or delete what uses it.", Command: "kubectl describe resourcequota --namespace " + t.configuration.Namespace}}
		})},
		rule{BrokerRefused, LinkCreated, 3, refusedWith("", correct)},
	)
}

// refusedWith finds a message of the API server, which has no machine-readable reason for them.
func refusedWith(text string, remedies func(t target) []Remedy) func(target) []Cause {
	return func(t target) []Cause {
		if t.refusal == "" || !strings.Contains(t.refusal, text) {
			return nil
		}
		return []Cause{{Message: t.refusal, Remedies: remedies(t)}}
	}
}
