package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Service is one workload of Akri.
type Service struct {
	Component string `json:"component"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Desired   int32  `json:"desired"`
	Ready     int32  `json:"ready"`
	// Versions of its Pods. More than one means an update in progress, or version skew.
	Versions []string `json:"versions"`
	// NotReadyOn lists the nodes of Pods that are not ready.
	NotReadyOn []string `json:"notReadyOn,omitempty"`

	created metav1.Time
	// refused is the message of the API server that refuses its Pods, if the workload has it.
	refused string
	// pods are those that it should have.
	pods []*corev1.Pod
	// overdue is set if one of them should have started. During an update there are more than
	// desired, so that the ready ones do not show it.
	overdue bool
}

// Services returns the workloads of Akri, by component. Callers must not change them.
func (s *Snapshot) Services() []Service {
	if s.indexed().services != nil {
		return s.index.services
	}

	services := []Service{}
	for i := range s.DaemonSets {
		d := &s.DaemonSets[i]
		services = append(services, newService("DaemonSet", &d.ObjectMeta, d.Status.DesiredNumberScheduled, d.Status.NumberReady))
	}
	for i := range s.Deployments {
		d := &s.Deployments[i]
		service := newService("Deployment", &d.ObjectMeta, *cmp.Or(d.Spec.Replicas, new(int32(1))), d.Status.ReadyReplicas)
		service.refused = replicaFailure(d.Status.Conditions)
		services = append(services, service)
	}
	for i := range services {
		services[i].addPods(s)
	}

	slices.SortFunc(services, func(a, b Service) int {
		return strings.Compare(a.Component+"/"+a.Name, b.Component+"/"+b.Name)
	})
	s.index.services = services
	return services
}

func newService(kind string, workload *metav1.ObjectMeta, desired, ready int32) Service {
	return Service{
		Component: workload.Labels[ComponentLabel], Kind: kind, Namespace: workload.Namespace, Name: workload.Name,
		Desired: desired, Ready: ready, created: workload.CreationTimestamp,
	}
}

// addPods adds what the Pods of the service show.
func (service *Service) addPods(s *Snapshot) {
	versions, notReady := map[string]bool{}, map[string]bool{}
	for _, pod := range s.indexed().servicePods[service.Namespace+"/"+service.Component] {
		switch {
		case service.Kind == "DaemonSet" && !PodReady(pod) && isOff(s.nodeNamed(pod.Spec.NodeName)):
			service.Desired = max(0, service.Desired-1) // until the node is back; Deployments replace such a Pod
			continue
		case ended(pod):
			continue
		}

		service.pods = append(service.pods, pod)
		service.overdue = service.overdue || s.overdue(pod)
		if len(pod.Spec.Containers) > 0 {
			versions[imageVersion(pod.Spec.Containers[0].Image)] = true
		}
		if !PodReady(pod) && pod.Spec.NodeName != "" {
			notReady[pod.Spec.NodeName] = true
		}
	}
	service.Versions, service.NotReadyOn = slices.Sorted(maps.Keys(versions)), slices.Sorted(maps.Keys(notReady))
}

// overdue reports whether the Pod should have started on its node.
func (s *Snapshot) overdue(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Spec.NodeName != "" && !PodReady(pod) && start(pod, "").Over(s.now())
}

// imageVersion returns the tag of an image, or its digest if it has no tag.
func imageVersion(image string) string {
	name, digest, _ := strings.Cut(image, "@")
	if slash, colon := strings.LastIndexByte(name, '/'), strings.LastIndexByte(name, ':'); colon > slash {
		return name[colon+1:]
	}
	if digest != "" {
		return digest
	}
	return "latest"
}

// Versions returns the versions of Akri's Pods, sorted.
func Versions(services []Service) []string {
	var versions []string
	for _, service := range services {
		versions = append(versions, service.Versions...)
	}
	slices.Sort(versions)
	return slices.Compact(versions)
}

// ServicesLink checks the workloads of Akri.
func (s *Snapshot) ServicesLink() Link {
	if !s.readable("deployments") || !s.readable("daemonsets") {
		return skipped(LinkServices, "not checked: you may not list the workloads of Akri")
	}

	services := s.Services()
	causes := target{Snapshot: s, services: services}.causes(LinkServices)
	stopped := func(service Service) bool { return !service.complete() && service.Ready == 0 }
	switch {
	case len(services) == 0, slices.ContainsFunc(services, stopped), s.missingDefinition() != nil:
		return broken(LinkServices, causes...)
	case len(causes) > 0:
		return partly(LinkServices, causes[0].Message, causes...)
	default:
		return works(LinkServices, fmt.Sprintf("%s, version %s", Plural(len(services), "service"), strings.Join(Versions(services), ", ")))
	}
}

const maxNodes = 5

// NodeList lists at most maxNodes names.
func NodeList(names []string) string {
	if more := len(names) - maxNodes; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNodes], ", "), more)
	}
	return strings.Join(names, ", ")
}
