// Package explain finds out from listed API objects why a device is missing or a Pod does not run.
// It follows the chain from the Discovery Handler to the container and names the first broken link,
// its cause and the remedy. Its functions are pure: they read a Snapshot, and neither call the API
// server nor print.
package explain

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Snapshot has the objects that explanations follow from, of all namespaces.
type Snapshot struct {
	Installation

	// Now is the time by the clock of the API server. If it is zero, that of this machine counts.
	Now time.Time
	// Sightings are when a process that runs for longer has first seen what is waited for. Without
	// them the times in objects count, which the clocks of several machines have made.
	Sightings *Sightings

	Configurations []akriv0.Configuration
	Instances      []akriv0.Instance
	Nodes          []corev1.Node
	// Pods are those of Akri and those that request devices.
	Pods []corev1.Pod
	// Requested is what all Pods request of each node, by the name of the node, or nil if not all
	// Pods are known.
	Requested map[string]corev1.ResourceList
	Jobs      []batchv1.Job
	// ResourceClaims, ResourceClaimTemplates, the ResourceSlices of Akri's driver, and Unprepared
	// are listed only if a Pod has a ResourceClaim.
	ResourceClaims         []resourcev1.ResourceClaim
	ResourceClaimTemplates []resourcev1.ResourceClaimTemplate
	ResourceSlices         []resourcev1.ResourceSlice
	// Unprepared are the Events about Pods whose ResourceClaims a node could not prepare.
	Unprepared []corev1.Event
	// Selectors evaluates the selectors of claims. If it is nil, nothing follows from them.
	Selectors Selectors
	// Warnings are the Warning Events in the namespaces of Akri. They are evidence only: any user
	// who may create Events can write any text.
	Warnings []corev1.Event
	// Silent are the components of Akri of which no replica renews its Lease. Their Pods can still
	// be ready, as on a node that has just been lost.
	Silent []string
	// Unreadable names the resources that the user may not list. Nothing follows from their
	// absence.
	Unreadable []string
	// OneNamespace is true if Pods, Jobs, Configurations or Instances are only those of one
	// namespace, or of some, because the user may not list those of others.
	OneNamespace bool

	index *index
}

// Labels of Akri's workloads and Pods, which the chart sets.
const (
	PartOfLabel    = "app.kubernetes.io/part-of"
	PartOf         = "akri"
	ComponentLabel = "app.kubernetes.io/component"
	releaseLabel   = "app.kubernetes.io/instance"
)

// Components of Akri that explanations name.
const (
	InstanceWriter    = "instance-writer"
	brokerController  = "broker-controller"
	discoveryOperator = "discovery-operator"
	devicePluginHost  = "device-plugin-host"
	draKubeletPlugin  = "dra-kubelet-plugin"
	draController     = "dra-controller"
	agent             = "agent"
)

// ErrNoAttribute is the error of a selector that reads an attribute that the device does not have.
var ErrNoAttribute = errors.New("no such attribute")

// Selectors evaluates CEL selectors. Package selector implements it.
type Selectors interface {
	// Matches reports whether the selector selects the device. An attribute that the device does
	// not have is ErrNoAttribute.
	Matches(expression, driver string, device *resourcev1.Device) (bool, error)
	// Terms returns the operands of the conjunction that the selector is.
	Terms(expression string) []string
}

func (s *Snapshot) readable(resource string) bool { return !slices.Contains(s.Unreadable, resource) }

// object is a pointer to an API type.
type object[T any] interface {
	*T
	metav1.Object
}

// Find returns the object with the name, or nil.
func Find[T any, P object[T]](objects []T, namespace, name string) P {
	for i := range objects {
		if object := P(&objects[i]); object.GetName() == name && object.GetNamespace() == namespace {
			return object
		}
	}
	return nil
}

// Where returns the objects that keep accepts, by namespace and name.
func Where[T any, P object[T]](objects []T, keep func(P) bool) []P {
	var found []P
	for i := range objects {
		if object := P(&objects[i]); keep(object) {
			found = append(found, object)
		}
	}
	slices.SortStableFunc(found, func(a, b P) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return found
}

// ofComponents returns the workloads of the components.
func ofComponents[T any, P object[T]](workloads []T, components ...string) []P {
	return Where(workloads, func(workload P) bool { return slices.Contains(components, workload.GetLabels()[ComponentLabel]) })
}

// podsOn returns the Pods of Akri's components on the node.
func (s *Snapshot) podsOn(node string, components ...string) []*corev1.Pod {
	var found []*corev1.Pod
	for _, pod := range s.indexed().akriPods[node] {
		if slices.Contains(components, pod.Labels[ComponentLabel]) {
			found = append(found, pod)
		}
	}
	return found
}

// IsAkri reports whether the object is part of Akri's installation.
func IsAkri(object metav1.Object) bool { return object.GetLabels()[PartOfLabel] == PartOf }

// IsRelevant reports whether the Pod is one of Akri, a broker, or requests devices.
func IsRelevant(pod *corev1.Pod) bool {
	return IsAkri(pod) || pod.Labels[akriv0.ConfigurationLabel] != "" || len(DeviceRequests(pod)) > 0
}

// DeviceRequests returns the names of Akri's resources that the Pod requests, without `akri.sh/`,
// and how many.
func DeviceRequests(pod *corev1.Pod) map[string]int64 {
	requests := map[string]int64{}
	for _, container := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
		for name, quantity := range container.Resources.Limits {
			if device, ok := strings.CutPrefix(string(name), akriv0.Group+"/"); ok && !quantity.IsZero() {
				requests[device] += quantity.Value()
			}
		}
	}
	return requests
}

func requestedDevices(pod *corev1.Pod) []string {
	return slices.Sorted(maps.Keys(DeviceRequests(pod)))
}

// ended reports whether the Pod uses no devices any more.
func ended(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
}

// NodeReady reports whether the Node is ready.
func NodeReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// PodReady reports whether the Pod is ready.
func PodReady(pod *corev1.Pod) bool { return podHas(pod, corev1.PodReady) }

// podHas reports whether the condition of the Pod is True.
func podHas(pod *corev1.Pod, kind corev1.PodConditionType) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == kind && c.Status == corev1.ConditionTrue
	})
}
