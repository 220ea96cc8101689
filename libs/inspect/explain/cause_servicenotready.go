package explain

import (
	"fmt"
	"slices"
)

// ServiceNotReady means that a service of Akri has fewer ready Pods than it should have.
const ServiceNotReady CauseID = "ServiceNotReady"

func init() { register(rule{ServiceNotReady, LinkServices, 8, servicesWith(ServiceNotReady)}) }

// servicesWith finds the services that are not complete for the cause.
func servicesWith(id CauseID) finder {
	return func(t target, report func(Cause)) {
		for _, service := range t.services {
			if service.complete() || t.servesRequiredWebhook(service) && service.Ready == 0 || service.withoutImage(t.Snapshot) {
				continue // other causes
			}
			if cause := service.cause(t.Snapshot); cause.ID == id {
				report(cause)
			}
		}
	}
}

// cause returns why the service is not complete.
func (service Service) cause(s *Snapshot) Cause {
	if cause := service.podsNotCreated(s); cause != nil {
		return *cause
	}
	if cause := service.problem(s); cause != nil && cause.ID == VolumeNotMounted {
		return *cause
	}
	cause := service.notReady(s, "")
	cause.ID = ServiceNotReady
	return cause
}

// complete reports whether the service has the Pods that it should have, also those of an update.
func (service Service) complete() bool {
	return service.Ready >= service.Desired && !service.overdue && (service.Desired > 0 || service.Kind == "DaemonSet")
}

// notReady returns a cause with what is known about a service that is not complete, and what
// follows.
func (service Service) notReady(s *Snapshot, consequence string) Cause {
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
		pods := []any{service.Namespace, ComponentLabel, service.Component}
		cause.Remedies = []Remedy{
			remedy("Read why the Pods do not start.", "kubectl describe pods --namespace %s --selector %s=%s", pods...),
			remedy("Read their logs.", "kubectl logs --prefix --tail=50 --namespace %s --selector %s=%s", pods...),
		}
	}

	cause.Message += consequence
	if problem := service.problem(s); problem != nil {
		cause.Message += ": " + problem.Message
		cause.Evidence = problem.Evidence
		cause.Remedies = interruptingLast(slices.Concat(problem.Remedies, cause.Remedies)...)
	}
	return cause
}

// problem returns why a container of the service waits, or nil if none does.
func (service Service) problem(s *Snapshot) *Cause {
	problem := service.problemOfContainer(s)
	for i := 0; i < len(service.pods) && problem == nil; i++ {
		problem = waitsForImage(service.pods[i])
	}
	return problem
}

// problemOfContainer returns the error of a container, or nil if none has one. What an Event states
// has the lowest precedence.
func (service Service) problemOfContainer(s *Snapshot) (found *Cause) {
	for _, pod := range service.pods {
		cause := target{Snapshot: s, pod: pod}.firstCause(LinkContainer)
		switch {
		case cause == nil:
		case !cause.byEvent:
			return cause
		case found == nil:
			found = cause
		}
	}
	return found
}
