package explain

import (
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// SubjectDefinition is the kind of a CustomResourceDefinition.
const SubjectDefinition = "CustomResourceDefinition"

// certificates are the names of the Secret and the ConfigMap in which instance-writer keeps its CA,
// unless a Secret that it mounts has its certificate.
const certificates = "akri-ca"

// Requirement is an object that the services need, and that is missing or not of their version.
type Requirement struct {
	Subject akriv0.Subject `json:"subject"`
	Missing bool           `json:"missing,omitempty"`
	// Lacks are the fields that a CustomResourceDefinition does not have.
	Lacks []string `json:"lacks,omitempty"`
}

// Needed returns the objects that the installation needs. The chart has created them, and nothing
// creates them again. Processes that run can go on for a while without them.
func (in *Installation) Needed() []akriv0.Subject {
	var needed []akriv0.Subject
	add := func(kind, namespace, name string) {
		if object := *subject(kind, namespace, name); name != "" && !slices.Contains(needed, object) {
			needed = append(needed, object)
		}
	}

	for _, service := range in.webhookServices() {
		add("Service", service.Namespace, service.Name)
	}
	for i := range in.DaemonSets {
		addVolumes(&in.DaemonSets[i], in.DaemonSets[i].Spec.Template.Spec.Volumes, add)
	}
	for i := range in.Deployments {
		d := &in.Deployments[i]
		addVolumes(d, d.Spec.Template.Spec.Volumes, add)

		if d.Labels[ComponentLabel] == InstanceWriter {
			add("Service", d.Namespace, d.Name)
		}
		if d.Labels[ComponentLabel] == InstanceWriter && !mountsSecret(d.Spec.Template.Spec.Volumes) {
			add("Secret", d.Namespace, certificates)
		}
	}
	return needed
}

// addVolumes adds what a new Pod of the workload needs for its volumes.
func addVolumes(workload metav1.Object, volumes []corev1.Volume, add func(kind, namespace, name string)) {
	require := func(kind, name string, optional *bool) {
		if optional == nil || !*optional {
			add(kind, workload.GetNamespace(), name)
		}
	}

	for _, volume := range volumes {
		if from := volume.ConfigMap; from != nil {
			require("ConfigMap", from.Name, from.Optional)
		}
		if from := volume.Secret; from != nil {
			require("Secret", from.SecretName, from.Optional)
		}

		if volume.Projected == nil {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if from := source.ConfigMap; from != nil {
				require("ConfigMap", from.Name, from.Optional)
			}
			if from := source.Secret; from != nil {
				require("Secret", from.Name, from.Optional)
			}
		}
	}
}

func mountsSecret(volumes []corev1.Volume) bool {
	return slices.ContainsFunc(volumes, func(volume corev1.Volume) bool { return volume.Secret != nil })
}

type serviceReference = admissionregistrationv1.ServiceReference

// webhookServices returns the Services that the API server calls before it stores Configurations.
func (in *Installation) webhookServices() []serviceReference {
	var services []serviceReference
	for i := range in.Webhooks {
		for _, registered := range in.Webhooks[i].Webhooks {
			if service := registered.ClientConfig.Service; service != nil {
				services = append(services, *service)
			}
		}
	}
	return services
}

// NoAPI reports whether the cluster has no type of Akri.
func (in *Installation) NoAPI() bool {
	var missing, lacking int
	for _, unmet := range in.Unmet {
		switch {
		case unmet.Subject.Kind != SubjectDefinition:
		case unmet.Missing:
			missing++
		default:
			lacking++
		}
	}
	return missing > 1 && lacking == 0
}

// missingDefinition returns the cause if the cluster lacks a type: its objects were deleted.
func (in *Installation) missingDefinition() *Cause {
	for _, unmet := range in.Unmet {
		if unmet.Missing && unmet.Subject.Kind == SubjectDefinition {
			cause := in.unmetCause(unmet)
			return &cause
		}
	}
	return nil
}

// unmetCause explains what is missing.
func (in *Installation) unmetCause(unmet Requirement) Cause {
	if unmet.Subject.Kind == SubjectDefinition {
		return in.outdated(unmet)
	}
	return in.objectMissing(unmet)
}
