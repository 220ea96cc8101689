package explain

import "fmt"

// ServiceNotReady means that a service of Akri has fewer ready Pods than it should have.
const ServiceNotReady CauseID = "ServiceNotReady"

func init() { register(rule{ServiceNotReady, LinkServices, 3, serviceNotReady}) }

func serviceNotReady(t target, report func(Cause)) {
	for _, service := range t.services {
		if service.complete() || t.servesRequiredWebhook(service) && service.Ready == 0 || t.withoutImage(service) {
			continue // other causes
		}
		report(t.notReady(service, ""))
	}
}

// complete reports whether the service has the Pods that it should have.
func (s Service) complete() bool {
	return s.Ready >= s.Desired && (s.Desired > 0 || s.Kind == "DaemonSet")
}

// notReady returns a cause with what is known about a service that is not complete, and what
// follows.
func (s *Snapshot) notReady(service Service, consequence string) Cause {
	cause := Cause{Subject: subject(service.Kind, service.Namespace, service.Name)}
	if service.Desired == 0 {
		cause.Message = service.Component + " is scaled to 0"
		cause.Remedies = []Remedy{
			remedy("Start a replica.", "kubectl scale deployment %s --namespace %s --replicas=1", service.Name, service.Namespace),
		}
	} else {
		cause.Message = fmt.Sprintf("%d of %s of %s ready", service.Ready, Plural(int(service.Desired), "Pod"), service.Component)
		if len(service.NotReadyOn) > 0 {
			cause.Message += "; not ready on " + NodeList(service.NotReadyOn)
		}
		selector := fmt.Sprintf("--namespace %s --selector %s=%s", service.Namespace, ComponentLabel, service.Component)
		cause.Remedies = []Remedy{
			remedy("Read why the Pods do not start.", "kubectl describe pods %s", selector),
			remedy("Read their logs.", "kubectl logs --prefix --tail=50 %s", selector),
		}
	}

	cause.Message += consequence
	if waiting := s.waiting(service); waiting != nil {
		cause.Message += ": " + waiting.Message
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
