package check

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/explain"
)

// Review is the answer of the API server to Invalid.
type Review struct {
	// Refusal is nil if the API server would store the Configuration.
	Refusal error
}

// invalidField is the part of Invalid that only the webhook refuses: the API server stores any
// specification of a broker.
const invalidField = "spec.brokerSpec.brokerPodSpec.containers"

// Invalid returns a Configuration that the API server accepts and the webhook refuses: its broker
// has no container.
func Invalid() *akriv0.Configuration {
	return &akriv0.Configuration{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "akri-check-"},
		Spec: akriv0.ConfigurationSpec{
			DiscoveryHandler: akriv0.DiscoveryHandler{Name: "akri-check"},
			BrokerSpec:       &akriv0.BrokerSpec{BrokerPodSpec: &corev1.PodSpec{}},
		},
	}
}

// webhook checks that the API server calls the webhook, and that it answers.
func webhook(s *explain.Snapshot, review *Review) Result {
	const name = "webhook"
	failed := func(message string, remedies ...explain.Remedy) Result {
		return Result{Name: name, Outcome: Failed, Message: message, Remedies: remedies}
	}
	warning := func(message string) Result { return Result{Name: name, Outcome: Warning, Message: message} }
	if slices.Contains(s.Unreadable, "validatingwebhookconfigurations") {
		return warning("not checked: you may not list ValidatingWebhookConfigurations")
	}
	if len(s.Webhooks) == 0 {
		return warning("it is disabled: invalid Configurations are only found later")
	}
	for i := range s.Webhooks {
		all := s.Webhooks[i].Webhooks
		if len(all) == 0 {
			return warning("broker-controller has not registered it yet")
		}
		for _, registered := range all {
			if len(registered.ClientConfig.CABundle) == 0 {
				return failed("its registration "+s.Webhooks[i].Name+" has no CA certificate", logsOfBrokerController("Read why broker-controller does not register it."))
			}
		}
	}
	if review == nil {
		return warning("not checked: no Configuration was sent")
	}

	switch refusal := review.Refusal; {
	case refusal == nil:
		return failed("the API server would store a Configuration that the webhook refuses: it does not call the webhook",
			logsOfBrokerController("Read whether broker-controller runs and registers it."))
	case strings.Contains(refusal.Error(), "denied the request") && strings.Contains(refusal.Error(), invalidField):
		return passed(name, "it refuses an invalid Configuration, which was sent as a dry run")
	case strings.Contains(refusal.Error(), "failed calling webhook"):
		return failed("the API server cannot call it, and refuses all Configurations: "+refusal.Error(),
			explain.Remedy{Text: "Check its Service and what serves it.", Command: "kubectl get services,endpointslices --all-namespaces --selector " + explain.PartOfLabel + "=" + explain.PartOf},
			logsOfBrokerController("Read what broker-controller logs."))
	case apierrors.IsForbidden(refusal):
		return warning("not checked: you may not create Configurations in the namespace " + metav1.NamespaceDefault)
	default:
		return warning("not checked: the API server refused the Configuration for another reason: " + refusal.Error())
	}
}
