package explain

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// advertiseTimeout is more than a kubelet takes to report a new device: it updates the status of
// its node every 10 s.
const advertiseTimeout = 30 * time.Second

// Device returns the verdict on a device: whether a Pod that asks for it runs, now or, if all its
// slots are held, when one is free.
func Device(s *Snapshot, instance *akriv0.Instance) Verdict {
	return s.deviceLink(instance).of("Instance", instance.Namespace, instance.Name)
}

// deviceLink returns the state of the device on the node where it works best: a Pod can use that.
func (s *Snapshot) deviceLink(instance *akriv0.Instance) Link {
	known, ok := s.indexed().devices[instance]
	if !ok {
		known = s.bestPlace(instance)
		s.index.devices[instance] = known
	}
	return known
}

func (s *Snapshot) bestPlace(instance *akriv0.Instance) Link {
	if link := s.seenLink(instance); link.State != Works {
		return link
	}
	if link := s.componentLink(InstanceWriter); link.State == Broken || link.State == Waiting {
		return link // no slot is reserved without it
	}

	spec := brokerPodOf(s.configurationOf(instance))
	best := s.placeLink(instance, instance.Spec.Nodes[0], spec)
	for _, node := range instance.Spec.Nodes[1:] {
		if best.State == Works {
			break
		}
		if link := s.placeLink(instance, node, spec); severity[link.State] < severity[best.State] {
			best = link
		}
	}
	return best
}

// placeLink returns the state of a device on one of its nodes, for Pods with the spec, or with any
// if it is nil.
func (s *Snapshot) placeLink(instance *akriv0.Instance, name string, spec *corev1.PodSpec) Link {
	if !s.readable("nodes") {
		return skipped(LinkResource, "not checked: you may not list Nodes")
	}
	if instance.Spec.Capacity == 0 {
		link := s.seenLink(instance) // it has no slots
		link.Name = LinkResource
		return link
	}
	node := s.nodeNamed(name)
	if node != nil && node.Spec.Unschedulable {
		return Link{Name: LinkResource, State: OutOfService, Message: cordonedMessage(node)}
	}
	causes := target{Snapshot: s, instances: []*akriv0.Instance{instance}, node: name}.causes(LinkResource)
	if len(causes) > 0 {
		return broken(LinkResource, causes...)
	}
	switch {
	case node == nil:
		return skipped(LinkResource, "the Node "+name+" does not exist")
	case spec != nil:
		if reasons := unsuitable(spec, node); len(reasons) > 0 {
			return broken(LinkResource, s.nodeNotSuitable(instance, node, reasons))
		}
	}
	p := place{instance, node}
	if !p.usable() {
		return s.released(p)
	}
	return s.advertised(p)
}

func cordonedMessage(node *corev1.Node) string {
	if NodeReady(node) {
		return node.Name + " is cordoned"
	}
	return node.Name + " is cordoned and not ready"
}

// usable returns whether the device has a slot that Pods on the node can have, or have.
func (p place) usable() bool {
	return slices.ContainsFunc(slotsOf(p.instance), func(slot Slot) bool {
		return slot.Problem == "" && (slot.Node == "" || slot.Node == p.node.Name && slot.Claim == "" && slot.Resource == akriv0.ResourceName(p.instance.Name))
	})
}

// advertised returns whether the kubelet of the node has the device now. It has no device of which
// other nodes hold all slots.
func (s *Snapshot) advertised(p place) Link {
	allocatable := p.node.Status.Allocatable[corev1.ResourceName(akriv0.ResourceName(p.instance.Name))]
	if s.usesClaims(p.node) || !allocatable.IsZero() || !p.usable() {
		return p.works()
	}
	return s.notAdvertised(p)
}

// released returns whether the kubelet of the node will have the device when another node, which
// holds all slots with others, releases one.
func (s *Snapshot) released(p place) Link {
	if s.usesClaims(p.node) || !s.readable("pods") || s.OneNamespace {
		return p.works()
	}
	if !s.hosts(p.node) {
		return s.notAdvertised(p)
	}

	var stuck []place
	for _, slot := range slotsOf(p.instance) {
		holder := s.nodeNamed(slot.Node)
		if holder == nil || !NodeReady(holder) || s.hosts(holder) {
			return p.works() // or the slot is released after the node is lost
		}
		stuck = append(stuck, place{p.instance, holder})
	}
	return s.notAdvertised(stuck[0])
}

// hosts reports whether device-plugin-host works on the node.
func (s *Snapshot) hosts(node *corev1.Node) bool {
	return slices.ContainsFunc(s.podsOn(node.Name, devicePluginHost, agent), PodReady)
}

func (p place) works() Link {
	return works(LinkResource, fmt.Sprintf("%s on %s", akriv0.ResourceName(p.instance.Name), p.node.Name))
}

// notAdvertised returns the link of a device that the kubelet of the node does not have.
func (s *Snapshot) notAdvertised(p place) Link {
	since := []metav1.Time{p.instance.CreationTimestamp, readySince(p.node)}
	pods := s.podsOn(p.node.Name, devicePluginHost, agent)
	for _, pod := range pods {
		since = append(since, pod.CreationTimestamp, podSince(pod, corev1.PodReady))
	}
	link := s.expect(LinkResource, fmt.Sprintf("the kubelet of %s does not have %s", p.node.Name, akriv0.ResourceName(p.instance.Name)), expectation{
		Wait: awaits("its next report", latest(since...), advertiseTimeout),
		cause: Cause{
			ID: ResourceNotAdvertised, Subject: subject("Node", "", p.node.Name),
			Remedies: s.readPods("Check that device-plugin-host runs on the node.", p.node.Name, devicePluginHost),
		},
	})
	if link.State == Broken {
		s.explainPods(&link.Causes[0], pods)
	}
	return link
}

// explainPods adds why one of the Pods does not run.
func (s *Snapshot) explainPods(cause *Cause, pods []*corev1.Pod) {
	for _, pod := range pods {
		if why := (target{Snapshot: s, pod: pod}).firstCause(LinkContainer); why != nil {
			cause.Message += "; " + pod.Name + ": " + why.Message
			cause.Remedies = interruptingLast(slices.Concat(why.Remedies, cause.Remedies)...)
			return
		}
	}
}

func readySince(node *corev1.Node) metav1.Time {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.LastTransitionTime
		}
	}
	return node.CreationTimestamp
}

func podSince(pod *corev1.Pod, kind corev1.PodConditionType) metav1.Time {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == kind {
			return condition.LastTransitionTime
		}
	}
	return pod.CreationTimestamp
}
