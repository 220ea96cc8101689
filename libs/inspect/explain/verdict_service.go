package explain

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ServiceVerdicts returns the verdicts on the workloads of Akri, and on the objects that they need
// and that are missing or of another version.
func ServiceVerdicts(s *Snapshot) []Verdict {
	var verdicts []Verdict
	for _, unmet := range s.Unmet {
		cause := s.unmetCause(unmet)
		link := partly(LinkServices, cause.Message, cause)
		if unmet.Missing {
			link = broken(LinkServices, cause)
		}
		verdicts = append(verdicts, link.of(unmet.Subject.Kind, unmet.Subject.Namespace, unmet.Subject.Name))
	}
	several := s.twoInstallations()
	for _, service := range s.Services() {
		link := service.link(s)
		if several != nil && service.Component == InstanceWriter {
			link = worst(partly(LinkServices, several.Message, *several), link)
		}
		verdicts = append(verdicts, link.of(service.Kind, service.Namespace, service.Name))
	}
	return verdicts
}

// componentLink returns the state of a Deployment of Akri: Broken or Waiting only if no replica is
// ready. A component that another program has replaced is not known.
func (s *Snapshot) componentLink(component string) Link {
	for _, service := range s.Services() {
		if service.Component == component && service.Kind == "Deployment" {
			return service.link(s)
		}
	}
	return skipped(LinkServices, "no workload of Akri has the component "+component)
}

func (service Service) link(s *Snapshot) Link {
	if slices.Contains(s.Silent, service.Component) {
		cause := service.notReady(s, "")
		cause.ID, cause.Message = ServiceNotReady, "no replica of "+service.Component+" renews its Lease"
		return broken(LinkServices, cause)
	}
	ready := Plural(int(service.Ready), "Pod") + " of " + service.Component + " ready"
	if service.complete() {
		return works(LinkServices, ready)
	}

	cause := service.cause(s)
	switch since, starting := service.startingSince(s); {
	case service.Ready > 0:
		return partly(LinkServices, cause.Message, cause)
	case starting && cause.byEvent:
		return s.expect(LinkServices, ready, expectation{Wait: awaits("a Pod that is ready", since, reportTimeout), cause: cause})
	case starting && cause.ID == ServiceNotReady:
		return s.expect(LinkServices, cause.Message, expectation{Wait: awaits("a Pod that is ready", since, reportTimeout), cause: cause})
	default:
		return broken(LinkServices, cause)
	}
}

// startingSince returns when the youngest Pod of the service was created, and whether no
// object shows what prevents its Pods from starting.
func (service Service) startingSince(s *Snapshot) (since metav1.Time, starting bool) {
	if problem := service.problem(s); service.Desired == 0 || problem != nil && !problem.byEvent {
		return since, false
	}
	since = service.created
	for _, pod := range service.pods {
		since = latest(since, pod.CreationTimestamp)
	}
	return since, true
}
