package render

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// InstanceService returns the Service that selects the brokers of one device.
func InstanceService(instance *akriv0.Instance, spec *corev1.ServiceSpec) *corev1.Service {
	return service("Instance", instance, LabelInstance, spec)
}

// ConfigurationService returns the Service that selects the brokers of all devices of a
// Configuration.
func ConfigurationService(configuration *akriv0.Configuration) *corev1.Service {
	return service("Configuration", configuration, LabelConfiguration, configuration.Spec.ConfigurationServiceSpec)
}

func service(kind string, owner metav1.Object, label string, spec *corev1.ServiceSpec) *corev1.Service {
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
			Annotations:     map[string]string{AnnotationSpecHash: Hash(spec)},
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
