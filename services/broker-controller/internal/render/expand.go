package render

import (
	"strings"

	corev1 "k8s.io/api/core/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Names in the user's spec that are replaced by those of the object. Akri makes both names: the
// properties of a device, which a node chooses, are never part of a spec.
const (
	NameOfInstance      = "$(AKRI_INSTANCE)"
	NameOfConfiguration = "$(AKRI_CONFIGURATION)"
)

// Names replaces the names in the metadata of an object, and those of its spec for which Kubernetes
// has no variables. A second $ in front of a name keeps the name, as in Kubernetes.
type Names struct{ replacer *strings.Replacer }

// NamesOfInstance returns the Names in objects of an Instance.
func NamesOfInstance(instance, configuration string) Names {
	return Names{strings.NewReplacer(
		"$"+NameOfInstance, NameOfInstance, "$"+NameOfConfiguration, NameOfConfiguration,
		NameOfInstance, instance, NameOfConfiguration, configuration)}
}

// NamesOfConfiguration returns the Names in objects of a Configuration.
func NamesOfConfiguration(configuration string) Names {
	return Names{strings.NewReplacer("$"+NameOfConfiguration, NameOfConfiguration, NameOfConfiguration, configuration)}
}

func namesOf(instance *akriv0.Instance) Names {
	return NamesOfInstance(instance.Name, instance.Spec.ConfigurationName)
}

// Value returns the value with replaced names.
func (n Names) Value(value string) string { return n.replacer.Replace(value) }

// Values returns a copy of labels or annotations with replaced values.
func (n Names) Values(values map[string]string) map[string]string {
	if values == nil {
		return nil
	}
	replaced := make(map[string]string, len(values))
	for key, value := range values {
		replaced[key] = n.Value(value)
	}
	return replaced
}

func (n Names) replace(fields ...*string) {
	for _, field := range fields {
		*field = n.Value(*field)
	}
}

// replacePod replaces the names of what a Pod refers to, and its own name in the cluster's DNS. In
// command, args and env of containers Kubernetes replaces $(VARIABLE) itself.
func (n Names) replacePod(spec *corev1.PodSpec) {
	n.replace(&spec.Hostname, &spec.Subdomain)
	for i := range spec.Volumes {
		n.replaceVolume(&spec.Volumes[i].VolumeSource)
	}
	for _, containers := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range containers {
			n.replaceContainer(&containers[i])
		}
	}
}

func (n Names) replaceVolume(volume *corev1.VolumeSource) {
	if volume.Secret != nil {
		n.replace(&volume.Secret.SecretName)
	}
	if volume.ConfigMap != nil {
		n.replace(&volume.ConfigMap.Name)
	}
	if volume.PersistentVolumeClaim != nil {
		n.replace(&volume.PersistentVolumeClaim.ClaimName)
	}
	if volume.Projected == nil {
		return
	}
	for i := range volume.Projected.Sources {
		source := &volume.Projected.Sources[i]
		if source.Secret != nil {
			n.replace(&source.Secret.Name)
		}
		if source.ConfigMap != nil {
			n.replace(&source.ConfigMap.Name)
		}
	}
}

func (n Names) replaceContainer(container *corev1.Container) {
	for i := range container.EnvFrom {
		source := &container.EnvFrom[i]
		if source.SecretRef != nil {
			n.replace(&source.SecretRef.Name)
		}
		if source.ConfigMapRef != nil {
			n.replace(&source.ConfigMapRef.Name)
		}
	}
	for i := range container.Env {
		source := container.Env[i].ValueFrom
		if source != nil && source.SecretKeyRef != nil {
			n.replace(&source.SecretKeyRef.Name)
		}
		if source != nil && source.ConfigMapKeyRef != nil {
			n.replace(&source.ConfigMapKeyRef.Name)
		}
	}
}
