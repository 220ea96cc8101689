package explain

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// VolumeNotMounted means that the kubelet cannot mount a volume of a service of Akri.
const VolumeNotMounted CauseID = "VolumeNotMounted"

func init() {
	register(rule{VolumeNotMounted, LinkServices, 6, servicesWith(VolumeNotMounted)}, rule{VolumeNotMounted, LinkContainer, 10, volumeNotMounted})
}

// hostValues are the chart values of the directories of nodes, by the volumes of Akri's Pods.
var hostValues = map[string]string{
	"handlers": "handlers", "registrar": "mesh", "discovery-operator": "mesh", "config-plugin-allocator": "mesh", "cdi": "cdi",
	"device-plugins": "devicePlugins", "pod-resources": "kubelet", "plugins-registry": "kubelet",
}

// volumeNotMounted examines a Pod of Akri of which no container has started.
func volumeNotMounted(t target, report func(Cause)) {
	event := newestEvent(t.Warnings, "FailedMount", ofPod(t.pod))
	if event == nil || !isBeingPrepared(t.pod) {
		return
	}

	cause := Cause{
		byEvent: true,
		Subject: subject("Pod", t.pod.Namespace, t.pod.Name),
		Message: "the kubelet cannot mount a volume of " + t.pod.Name + ": " + event.Message,
	}
	for _, volume := range t.pod.Spec.Volumes {
		if strings.Contains(event.Message, `volume "`+volume.Name+`"`) {
			cause.Remedies = t.provideVolume(t.pod, volume)
		}
	}
	cause.Remedies = interruptingLast(append(cause.Remedies, describePod("Read the Events of the Pod.", t.pod))...)
	report(cause)
}

// provideVolume returns the remedies for a volume in the spec of a Pod.
func (in *Installation) provideVolume(pod *corev1.Pod, volume corev1.Volume) []Remedy {
	switch value := hostValues[volume.Name]; {
	case volume.HostPath != nil && value != "":
		return []Remedy{
			in.restarting(in.upgrade("Set the directory of the nodes instead of "+volume.HostPath.Path+".", "--set global.host.%s=DIRECTORY", value)),
		}
	case volume.Projected != nil:
		return []Remedy{
			remedy("Check that instance-writer has published its CA certificates.",
				"kubectl get configmap %s --namespace %s --output yaml", configMapOf(volume.Projected), pod.Namespace),
			in.upgrade("If the ConfigMap does not exist, let Helm create it.", ""),
		}
	default:
		return nil
	}
}

// configMapOf returns the name of the ConfigMap in the volume, or of the one that the chart has by
// default.
func configMapOf(volume *corev1.ProjectedVolumeSource) string {
	for _, source := range volume.Sources {
		if source.ConfigMap != nil {
			return source.ConfigMap.Name
		}
	}
	return certificates
}
