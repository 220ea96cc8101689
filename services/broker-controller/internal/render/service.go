package render

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// InstanceService returns the Service that selects the brokers of one device.
func InstanceService(instance *akriv0.Instance, spec *akriv0.ConfigurationSpec) *corev1.Service {
	svc := service("Instance", instance, LabelInstance, spec.InstanceServiceSpec, spec.InstanceServiceMetadata)
	addMetadata(&svc.ObjectMeta, spec.InstanceServiceMetadata, namesOf(instance))
	return svc
}

// ConfigurationService returns the Service that selects the brokers of all devices of a
// Configuration.
func ConfigurationService(configuration *akriv0.Configuration) *corev1.Service {
	spec := configuration.Spec
	svc := service("Configuration", configuration, LabelConfiguration, spec.ConfigurationServiceSpec, spec.ConfigurationServiceMetadata)
	addMetadata(&svc.ObjectMeta, spec.ConfigurationServiceMetadata, NamesOfConfiguration(configuration.Name))
	return svc
}

// service returns the Service without the user's metadata, which is only part of its hash.
func service(
	kind string, owner metav1.Object, label string, spec *corev1.ServiceSpec, metadata *akriv0.AdditionalMetadata,
) *corev1.Service {
	name := ServiceName(owner.GetName())
	svc := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name:      name,
			Namespace: owner.GetNamespace(),
			Labels: map[string]string{
				LabelApp:        LabelValue(name),
				LabelController: akriv0.Group,
				label:           LabelValue(owner.GetName()),
			},
			Annotations:     map[string]string{AnnotationSpecHash: serviceHash(spec, metadata)},
			OwnerReferences: []metav1.OwnerReference{ownerReference(kind, owner)},
		},
		Spec: *spec.DeepCopy(),
	}
	if svc.Spec.Selector == nil {
		svc.Spec.Selector = map[string]string{}
	}
	svc.Spec.Selector[LabelController] = akriv0.Group
	svc.Spec.Selector[label] = svc.Labels[label]
	return svc
}

// serviceHash is the Hash of the spec alone if there is no metadata, as in Services that exist.
func serviceHash(spec *corev1.ServiceSpec, metadata *akriv0.AdditionalMetadata) string {
	if metadata == nil {
		return Hash(spec)
	}
	return Hash(akriv0.ConfigurationSpec{InstanceServiceSpec: spec, InstanceServiceMetadata: metadata})
}
