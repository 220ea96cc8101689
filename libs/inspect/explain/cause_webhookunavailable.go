package explain

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
)

// WebhookUnavailable means that no replica serves the webhook, so that the API server refuses new
// and changed Configurations.
const WebhookUnavailable CauseID = "WebhookUnavailable"

func init() { register(rule{WebhookUnavailable, LinkServices, 2, webhookUnavailable}) }

const refusesConfigurations = "the API server refuses new and changed Configurations"

func webhookUnavailable(t target, report func(Cause)) {
	for _, service := range t.services {
		if t.servesRequiredWebhook(service) && service.Ready == 0 {
			report(service.notReady(t.Snapshot, "; "+refusesConfigurations))
		}
	}
}

// servesRequiredWebhook reports whether the API server refuses Configurations without the service.
func (in *Installation) servesRequiredWebhook(service Service) bool {
	return service.Component == brokerController && in.refusesWithoutWebhook()
}

func (in *Installation) refusesWithoutWebhook() bool {
	return slices.ContainsFunc(in.Webhooks, func(configuration admissionregistrationv1.ValidatingWebhookConfiguration) bool {
		return slices.ContainsFunc(configuration.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool {
			return w.FailurePolicy == nil || *w.FailurePolicy == admissionregistrationv1.Fail
		})
	})
}
