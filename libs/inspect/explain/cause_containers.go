package explain

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// ImageNotPulled means that the node cannot get the image of a container.
const ImageNotPulled CauseID = "ImageNotPulled"

// CrashLoop means that a container ends repeatedly.
const CrashLoop CauseID = "CrashLoop"

// ContainerNotCreated means that the kubelet cannot create a container.
const ContainerNotCreated CauseID = "ContainerNotCreated"

func init() {
	register(
		rule{ImageNotPulled, LinkContainer, 0, whenWaiting(ImageNotPulled, imageNotPulled)},
		rule{CrashLoop, LinkContainer, 1, whenWaiting(CrashLoop, crashLoop)},
		rule{ContainerNotCreated, LinkContainer, 2, whenWaiting(ContainerNotCreated, containerNotCreated)},
		rule{ImageNotPulled, LinkServices, 3, imagesNotPulled},
	)
}

// causeOfWaiting returns the cause for the reason for which a container waits, or nothing if it
// starts.
func causeOfWaiting(reason string) CauseID {
	switch reason {
	case "", "ContainerCreating", "PodInitializing":
		return ""
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable",
		"SignatureValidationFailed":
		return ImageNotPulled
	case "CrashLoopBackOff":
		return CrashLoop
	default:
		return ContainerNotCreated
	}
}

// whenWaiting finds the containers that wait because of the cause.
func whenWaiting(id CauseID, cause func(*corev1.Pod, corev1.ContainerStatus) Cause) finder {
	return func(t target, report func(Cause)) {
		for _, status := range containers(t.pod) {
			if status.State.Waiting != nil && causeOfWaiting(status.State.Waiting.Reason) == id {
				report(cause(t.pod, status))
			}
		}
	}
}

func containers(pod *corev1.Pod) []corev1.ContainerStatus {
	return slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
}

// specOf returns the container in the spec of the Pod that the status is about, or the first one.
// Remedies name what is in the spec: a kubelet can write any name and image to the status.
func specOf(pod *corev1.Pod, status corev1.ContainerStatus) (container corev1.Container) {
	all := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	i := slices.IndexFunc(all, func(c corev1.Container) bool { return c.Name == status.Name })
	if len(all) > 0 {
		container = all[max(i, 0)]
	}
	return container
}

// backOff is the kubelet's message until it tries again to pull an image. It ends with the reason
// and the message of the last attempt.
var backOff = regexp.MustCompile(`(?s)^Back-off pulling image "(?:[^"\\]|\\.)*": ([A-Za-z]+): (.*)$`)

// WhyWaiting returns why a container does not start. When an image cannot be pulled, the kubelet
// alternates between the error of an attempt and a back-off. For both, it returns the error: a text
// that changes with each attempt would be written to conditions each time.
func WhyWaiting(waiting *corev1.ContainerStateWaiting) (reason, message string) {
	if waiting.Reason != "ImagePullBackOff" {
		return waiting.Reason, waiting.Message
	}
	if last := backOff.FindStringSubmatch(waiting.Message); last != nil {
		return last[1], last[2]
	}
	return "ErrImagePull", waiting.Message // the kubelet does not always repeat the error
}

func waitingText(status corev1.ContainerStatus) string {
	reason, message := WhyWaiting(status.State.Waiting)
	return fmt.Sprintf("container %q: %s: %s", status.Name, reason, message)
}

func imageNotPulled(pod *corev1.Pod, status corev1.ContainerStatus) Cause {
	// What the Pod is created from.
	kind, name := "pod", pod.Name
	if configuration := pod.Labels[akriv0.ConfigurationLabel]; configuration != "" {
		kind, name = "configuration.akri.sh", configuration
	}
	return Cause{Message: waitingText(status), Remedies: []Remedy{
		remedy(fmt.Sprintf("Correct the name of the image %q, or make it available to %s.", specOf(pod, status).Image, pod.Spec.NodeName),
			"kubectl edit %s %s --namespace %s", kind, name, pod.Namespace),
		remedy("If the registry needs a login: create a Secret, and name it in imagePullSecrets.",
			"kubectl create secret docker-registry NAME --namespace %s --docker-server=REGISTRY --docker-username=USER --docker-password=PASSWORD",
			pod.Namespace),
	}}
}

// WaitsForImage returns the container that the kubelet starts next, or nil if it may wait for
// something else than its image. When the sandbox of the Pod is ready, a container is created as
// soon as its image is there. The kubelet states no error while a registry does not answer.
func WaitsForImage(pod *corev1.Pod) *corev1.Container {
	if pod.Status.Phase != corev1.PodPending || !podHas(pod, corev1.PodReadyToStartContainers) {
		return nil
	}
	inOrder := slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
	for i := range inOrder {
		state := stateOf(pod, inOrder[i].Name)
		switch {
		case state.Waiting != nil && causeOfWaiting(state.Waiting.Reason) == "":
			return &inOrder[i]
		case i < len(pod.Spec.InitContainers) && state.Terminated == nil:
			return nil // the next one waits until it has ended
		}
	}
	return nil
}

// stateOf returns the state of a container. It is empty if a cache does not keep it.
func stateOf(pod *corev1.Pod, name string) corev1.ContainerState {
	for _, status := range containers(pod) {
		if status.Name == name {
			return status.State
		}
	}
	return corev1.ContainerState{}
}

// WaitingForImage describes a container that waits for its image.
func WaitingForImage(container *corev1.Container) string {
	return fmt.Sprintf("container %q waits for its image %q", container.Name, container.Image)
}

// startsContainers is the link of a Pod whose containers do not run yet.
func (t target) startsContainers() Link {
	message, e := "starting", start(t.pod, "containers that run")
	if cause := waitsForImage(t.pod); cause != nil {
		message, e.cause = cause.Message, *cause
	}
	return t.expect(LinkContainer, message, e)
}

// waitsForImage returns the cause of a Pod that waits for an image without an error, or nil.
func waitsForImage(pod *corev1.Pod) *Cause {
	container := WaitsForImage(pod)
	if container == nil {
		return nil
	}
	return &Cause{ID: ImageNotPulled, Message: WaitingForImage(container), Remedies: []Remedy{
		describePod("Read the Events of the Pod. After Pulling without Pulled, the registry does not answer, or sends the image slowly.", pod),
		remedy(fmt.Sprintf("If other images are pulled on %s, this one may wait for them: set maxParallelImagePulls of its kubelet.", pod.Spec.NodeName),
			"kubectl get events --all-namespaces --field-selector reason=Pulling"),
	}}
}

func crashLoop(pod *corev1.Pod, status corev1.ContainerStatus) Cause {
	container := specOf(pod, status)
	cause := Cause{
		Message:  fmt.Sprintf("container %q ends repeatedly (%s)", status.Name, Plural(int(status.RestartCount), "restart")),
		Evidence: []string{"Pod " + pod.Namespace + "/" + pod.Name + ": " + waitingText(status)},
		Remedies: []Remedy{
			remedy("Read the logs.", "kubectl logs %s --namespace %s --container %s --previous", pod.Name, pod.Namespace, container.Name),
			describePod("Read the Events of the Pod.", pod),
		},
	}

	if end := status.LastTerminationState.Terminated; end != nil {
		cause.Message += fmt.Sprintf(", last with exit code %d (%s)", end.ExitCode, end.Reason)
		if line := lastLine(end.Message); line != "" {
			cause.Evidence = append(cause.Evidence, "last line of its log: "+line)
		}
		if strings.Contains(end.Message, "exec format error") {
			cause.Remedies = append([]Remedy{remedy(fmt.Sprintf("The image %q is for another processor: use one for that of the node.", container.Image),
				"kubectl get node %s --output jsonpath='{.status.nodeInfo.architecture}'", pod.Spec.NodeName)}, cause.Remedies...)
		}
	}
	return cause
}

// maxLogLine limits the last line of a log in bytes.
const maxLogLine = 300

// lastLine returns the last line of a text that is not empty.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	line := text[strings.LastIndexByte(text, '\n')+1:]
	return strings.ToValidUTF8(line[:min(len(line), maxLogLine)], "")
}

func containerNotCreated(pod *corev1.Pod, status corev1.ContainerStatus) Cause {
	return Cause{Message: waitingText(status), Remedies: []Remedy{describePod("Read the Events of the Pod.", pod)}}
}

// imagesNotPulled returns one cause for all services whose images are not available, because they
// usually have the same registry and tag.
func imagesNotPulled(t target, report func(Cause)) {
	services := slices.DeleteFunc(slices.Clone(t.services), func(service Service) bool { return !service.withoutImage(t.Snapshot) })
	if len(services) > 0 {
		report(Cause{
			Message: Plural(len(services), "service") + " without an image: " + services[0].problem(t.Snapshot).Message,
			Remedies: []Remedy{t.restarting(t.upgrade("Set a registry and a tag that have the images, or copy the images to the nodes.",
				"--set global.image.registry=REGISTRY,global.image.tag=TAG"))},
		})
	}
}

// withoutImage reports whether the service is not complete because of an error of its image, and
// nothing else follows from that.
func (service Service) withoutImage(s *Snapshot) bool {
	if service.complete() || s.servesRequiredWebhook(service) && service.Ready == 0 {
		return false
	}
	problem := service.problemOfContainer(s)
	return problem != nil && problem.ID == ImageNotPulled
}
