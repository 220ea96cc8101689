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
}

// Services returns the workloads of Akri, by component. Callers must not change them.
func (s *Snapshot) Services() []Service {
	if s.indexed().services == nil {
		s.index.services = s.findServices()
	}
	return s.index.services
}

func (s *Snapshot) findServices() []Service {
	services := []Service{}
	for i := range s.DaemonSets {
		d := &s.DaemonSets[i]
		services = append(services, s.service("DaemonSet", &d.ObjectMeta, d.Status.DesiredNumberScheduled, d.Status.NumberReady))
	}
	for i := range s.Deployments {
		d := &s.Deployments[i]
		service := s.service("Deployment", &d.ObjectMeta, *cmp.Or(d.Spec.Replicas, new(int32(1))), d.Status.ReadyReplicas)
		service.refused = replicaFailure(d.Status.Conditions)
		services = append(services, service)
	}
	slices.SortFunc(services, func(a, b Service) int {
		return strings.Compare(a.Component+"/"+a.Name, b.Component+"/"+b.Name)
	})
	return services
}

// podsOf returns the Pods that the service should have.
func (s *Snapshot) podsOf(service Service) []*corev1.Pod {
	all := slices.Clone(s.allPodsOf(service))
	return slices.DeleteFunc(all, func(pod *corev1.Pod) bool { return ended(pod) || s.isOffWithNode(service, pod) })
}

func (s *Snapshot) allPodsOf(service Service) []*corev1.Pod {
	return s.indexed().servicePods[service.Namespace+"/"+service.Component]
}

// isOffWithNode reports whether the Pod does not run because its node is off. A Deployment replaces
// such a Pod on another node.
func (s *Snapshot) isOffWithNode(service Service, pod *corev1.Pod) bool {
	return service.Kind == "DaemonSet" && !PodReady(pod) && isOff(s.nodeNamed(pod.Spec.NodeName))
}

// service returns a workload with what its Pods show.
func (s *Snapshot) service(kind string, workload *metav1.ObjectMeta, desired, ready int32) Service {
	service := Service{
		Component: workload.Labels[ComponentLabel], Kind: kind, Namespace: workload.Namespace, Name: workload.Name,
		Desired: desired, Ready: ready, created: workload.CreationTimestamp,
	}
	versions, notReady := map[string]bool{}, map[string]bool{}
	for _, pod := range s.allPodsOf(service) {
		if s.isOffWithNode(service, pod) {
			service.Desired = max(0, service.Desired-1) // until the node is back
		}
	}
	for _, pod := range s.podsOf(service) {
		if len(pod.Spec.Containers) > 0 {
			versions[imageVersion(pod.Spec.Containers[0].Image)] = true
		}
		if !PodReady(pod) && pod.Spec.NodeName != "" {
			notReady[pod.Spec.NodeName] = true
		}
	}
	service.Versions, service.NotReadyOn = slices.Sorted(maps.Keys(versions)), slices.Sorted(maps.Keys(notReady))
	return service
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
