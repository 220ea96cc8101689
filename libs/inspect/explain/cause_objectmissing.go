package explain

import "slices"

// ObjectMissing means that an object was deleted that the chart has created and the services need.
const ObjectMissing CauseID = "ObjectMissing"

func init() { register(rule{ObjectMissing, LinkServices, 4, objectsMissing}) }

func objectsMissing(t target, report func(Cause)) {
	for _, unmet := range t.Unmet {
		if unmet.Subject.Kind != SubjectDefinition {
			report(t.unmetCause(unmet))
		}
	}
}

func (in *Installation) objectMissing(unmet Requirement) Cause {
	object := unmet.Subject
	return Cause{
		ID: ObjectMissing, Subject: &object,
		Message:  "the " + object.Kind + " " + object.Namespace + "/" + object.Name + " does not exist; " + in.consequence(unmet),
		Remedies: []Remedy{in.upgrade("Let Helm create what is missing.", "")},
	}
}

func (in *Installation) consequence(unmet Requirement) string {
	object := unmet.Subject
	switch isOfWebhook := slices.ContainsFunc(in.webhookServices(), func(service serviceReference) bool {
		return service.Name == object.Name && service.Namespace == object.Namespace
	}); {
	case isOfWebhook && in.refusesWithoutWebhook():
		return refusesConfigurations
	case isOfWebhook:
		return "invalid Configurations are only found later"
	case object.Kind == "Service":
		return "nodes do not find " + InstanceWriter
	case object.Kind == "Secret" && object.Name == certificates:
		return InstanceWriter + " does not renew its certificates"
	default:
		return "Pods that mount it do not start"
	}
}
