package explain

import (
	"slices"

	"akri.sh/libs/version"
)

// CRDOutdated means that a CustomResourceDefinition of Akri is missing or older than the services.
// `helm upgrade` does not change those that the chart akri has installed.
const CRDOutdated CauseID = "CRDOutdated"

func init() { register(rule{CRDOutdated, LinkServices, 1, crdOutdated}) }

// Definition is a CustomResourceDefinition that differs from the types of this program.
type Definition struct {
	Name    string `json:"name"`
	Missing bool   `json:"missing,omitempty"`
	// Lacks are the fields that it does not have.
	Lacks []string `json:"lacks,omitempty"`
}

// NoAPI reports whether the cluster has no type of Akri.
func (s *Snapshot) NoAPI() bool {
	return len(s.Outdated) > 1 && !slices.ContainsFunc(s.Outdated, func(d Definition) bool { return !d.Missing })
}

// missingDefinition returns the cause if the cluster lacks a type: its objects were deleted.
func (s *Snapshot) missingDefinition() *Cause {
	for _, definition := range s.Outdated {
		if definition.Missing {
			cause := s.outdatedCause(definition)
			return &cause
		}
	}
	return nil
}

func crdOutdated(t target, report func(Cause)) {
	if len(t.services) == 0 {
		return
	}
	for _, definition := range t.Outdated {
		report(t.outdatedCause(definition))
	}
}

func (s *Snapshot) outdatedCause(definition Definition) Cause {
	_, namespace := s.release()
	cause := Cause{
		ID: CRDOutdated, Subject: subject("CustomResourceDefinition", "", definition.Name),
		Message: "the CustomResourceDefinition " + definition.Name + " does not exist",
		Remedies: []Remedy{remedy("Install the CustomResourceDefinitions of this version.",
			"helm upgrade --install akri-crds charts/akri-crds --namespace %s --take-ownership", namespace)},
	}
	if !definition.Missing {
		cause.Message = "the CustomResourceDefinition " + definition.Name + " is not that of version " + version.Version +
			": it lacks " + NodeList(definition.Lacks)
	}
	return cause
}
