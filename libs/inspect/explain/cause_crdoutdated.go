package explain

import "akri.sh/libs/version"

// CRDOutdated means that a CustomResourceDefinition of Akri is missing or older than the services.
// `helm upgrade` does not change those that the chart akri has installed.
const CRDOutdated CauseID = "CRDOutdated"

func init() { register(rule{CRDOutdated, LinkServices, 1, crdOutdated}) }

func crdOutdated(t target, report func(Cause)) {
	if len(t.services) == 0 {
		return
	}
	for _, unmet := range t.Unmet {
		if unmet.Subject.Kind == SubjectDefinition {
			report(t.unmetCause(unmet))
		}
	}
}

// outdated explains a CustomResourceDefinition.
func (in *Installation) outdated(definition Requirement) Cause {
	_, namespace := in.release()
	name := definition.Subject.Name
	// The chart has no workloads, so that the command restarts nothing.
	cause := Cause{
		ID: CRDOutdated, Subject: &definition.Subject, Message: "the CustomResourceDefinition " + name + " does not exist",
		Remedies: []Remedy{remedy("Install the CustomResourceDefinitions of this version.",
			"helm upgrade --install akri-crds charts/akri-crds --namespace %s --take-ownership --server-side=true --force-conflicts", namespace)},
	}
	if !definition.Missing {
		cause.Message = "the CustomResourceDefinition " + name + " is not that of version " + version.Version +
			": it lacks " + NodeList(definition.Lacks)
	}
	return cause
}
