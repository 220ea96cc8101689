package render

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// InstanceService leads to the brokers of one device.
func InstanceService(instance *akriv0.Instance, spec *corev1.ServiceSpec) *corev1.Service {
	return service("Instance", instance, LabelInstance, spec)
}

// ConfigurationService leads to the brokers of all devices of a Configuration.
func ConfigurationService(configuration *akriv0.Configuration) *corev1.Service {
	return service("Configuration", configuration, LabelConfiguration, configuration.Spec.ConfigurationServiceSpec)
}

func service(kind string, of metav1.Object, label string, spec *corev1.ServiceSpec) *corev1.Service {
	name := ServiceName(of.GetName())
	made := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name:      name,
			Namespace: of.GetNamespace(),
			Labels: map[string]string{
				LabelApp:        LabelValue(name),
				LabelController: akriv0.Group,
				label:           LabelValue(of.GetName()),
			},
			Annotations:     map[string]string{AnnotationSpecHash: Hash(spec)},
			OwnerReferences: []metav1.OwnerReference{owner(kind, of)},
		},
		Spec: *spec.DeepCopy(),
	}
	if made.Spec.Selector == nil {
		made.Spec.Selector = map[string]string{}
	}
	made.Spec.Selector[LabelController] = akriv0.Group
	made.Spec.Selector[label] = made.Labels[label]
	return made
}
