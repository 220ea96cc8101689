package explain

import (
	"fmt"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// ServiceNotReady means that a service of Akri has fewer ready Pods than it should have.
const ServiceNotReady CauseID = "ServiceNotReady"

func init() { register(rule{ServiceNotReady, LinkServices, 3, serviceNotReady}) }

func serviceNotReady(t target) []Cause {
	var causes []Cause
	for _, service := range t.services {
		if service.complete() || t.servesRequiredWebhook(service) && service.Ready == 0 || t.withoutImage(service) {
			continue // other causes
		}
		cause := t.notReady(service)
		cause.Message += t.waitingMessage(service)
		causes = append(causes, cause)
	}
	return causes
}

// complete reports whether the service has the Pods that it should have.
func (s Service) complete() bool {
	return s.Ready >= s.Desired && (s.Desired > 0 || s.Kind == "DaemonSet")
}

// notReady returns a cause with what is known about a service that is not complete.
func (s *Snapshot) notReady(service Service) Cause {
	cause := Cause{Subject: &akriv0.Subject{Kind: service.Kind, Namespace: service.Namespace, Name: service.Name}}
	if service.Desired == 0 {
		cause.Message = service.Component + " is scaled to 0"
		cause.Remedies = []Remedy{{
			Text:    "Start a replica.",
			Command: fmt.Sprintf("kubectl scale deployment %s --namespace %s --replicas=1", service.Name, service.Namespace),
		}}
		return cause
	}

	cause.Message = fmt.Sprintf("%d of %s of %s ready", service.Ready, Plural(int(service.Desired), "Pod"), service.Component)
	if len(service.NotReadyOn) > 0 {
		cause.Message += "; not ready on " + NodeList(service.NotReadyOn)
	}

	selector := fmt.Sprintf("--namespace %s --selector %s=%s", service.Namespace, ComponentLabel, service.Component)
	cause.Remedies = []Remedy{
		{Text: "Read why the Pods do not start.", Command: "kubectl describe pods " + selector},
		{Text: "Read their logs.", Command: "kubectl logs --prefix --tail=50 " + selector},
	}
	return cause
}

// waiting returns why a container of the service waits, or nil if none does.
func (s *Snapshot) waiting(service Service) *Cause {
	for _, pod := range s.podsOf(service) {
		if cause := (target{Snapshot: s, pod: pod}).firstCause(LinkContainer); cause != nil {
			return cause
		}
	}
	return nil
}

func (s *Snapshot) waitingMessage(service Service) string {
	if waiting := s.waiting(service); waiting != nil {
		return ": " + waiting.Message
	}
	return ""
}
