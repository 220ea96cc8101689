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
		known = bestPlace(s, instance)
		s.index.devices[instance] = known
	}
	return known
}

func bestPlace(s *Snapshot, instance *akriv0.Instance) Link {
	if link := s.seenLink(instance); link.State != Works {
		return link
	}
	if link := s.componentLink(InstanceWriter); link.State == Broken || link.State == Waiting {
		return link // no slot is reserved without it
	}

	spec := brokerPodOf(s.configurationOf(instance))
	best := placeOf(s, instance, instance.Spec.Nodes[0]).link(spec)
	for _, node := range instance.Spec.Nodes[1:] {
		if best.State == Works {
			break
		}
		if link := placeOf(s, instance, node).link(spec); severity[link.State] < severity[best.State] {
			best = link
		}
	}
	return best
}

// place is an Instance on one of its nodes.
type place struct {
	*Snapshot

	instance *akriv0.Instance
	// name of the node. The node is nil if no Node has the name.
	name string
	node *corev1.Node
}

func placeOf(s *Snapshot, instance *akriv0.Instance, node string) place {
	return place{s, instance, node, s.nodeNamed(node)}
}

// link returns the state of the device for Pods with the spec, or with any if it is nil.
func (p place) link(spec *corev1.PodSpec) Link {
	if !p.readable("nodes") {
		return skipped(LinkResource, "not checked: you may not list Nodes")
	}
	if p.instance.Spec.Capacity == 0 {
		link := p.seenLink(p.instance) // it has no slots
		link.Name = LinkResource
		return link
	}
	if p.node != nil && p.node.Spec.Unschedulable {
		return Link{Name: LinkResource, State: OutOfService, Message: cordonedMessage(p.node)}
	}

	causes := target{Snapshot: p.Snapshot, instances: []*akriv0.Instance{p.instance}, node: p.name}.causes(LinkResource)
	if len(causes) > 0 {
		return broken(LinkResource, causes...)
	}
	switch {
	case p.node == nil:
		return skipped(LinkResource, "the Node "+p.name+" does not exist")
	case spec != nil:
		if reasons := unsuitable(spec, p.node); len(reasons) > 0 {
			return broken(LinkResource, nodeNotSuitable(p.configurationOf(p.instance), p.node, reasons))
		}
	}
	if !p.usable() {
		return p.released()
	}
	return p.advertised()
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
		return slot.Problem == "" && (slot.Node == "" || slot.Node == p.name && slot.Claim == "" && slot.Resource == akriv0.ResourceName(p.instance.Name))
	})
}

// advertised returns whether the kubelet of the node has the device now. It has no device of which
// other nodes hold all slots.
func (p place) advertised() Link {
	allocatable := p.node.Status.Allocatable[corev1.ResourceName(akriv0.ResourceName(p.instance.Name))]
	if p.usesClaims(p.node) || !allocatable.IsZero() || !p.usable() {
		return p.works()
	}
	return p.notAdvertised()
}

// released returns whether the kubelet of the node will have the device when another node, which
// holds all slots with others, releases one.
func (p place) released() Link {
	if p.usesClaims(p.node) || !p.readable("pods") || p.OneNamespace {
		return p.works()
	}
	if !p.hosts() {
		return p.notAdvertised()
	}

	var stuck []place
	for _, slot := range slotsOf(p.instance) {
		holder := placeOf(p.Snapshot, p.instance, slot.Node)
		if holder.node == nil || !NodeReady(holder.node) || holder.hosts() {
			return p.works() // or the slot is released after the node is lost
		}
		stuck = append(stuck, holder)
	}
	return stuck[0].notAdvertised()
}

// hosts reports whether device-plugin-host works on the node.
func (p place) hosts() bool {
	return slices.ContainsFunc(p.podsOn(p.name, devicePluginHost, agent), PodReady)
}

func (p place) works() Link {
	return works(LinkResource, fmt.Sprintf("%s on %s", akriv0.ResourceName(p.instance.Name), p.name))
}

// notAdvertised returns the link of a device that the kubelet of the node does not have.
func (p place) notAdvertised() Link {
	since := []metav1.Time{p.instance.CreationTimestamp, readySince(p.node)}
	pods := p.podsOn(p.name, devicePluginHost, agent)
	for _, pod := range pods {
		since = append(since, pod.CreationTimestamp, podSince(pod, corev1.PodReady))
	}
	link := p.expect(LinkResource, fmt.Sprintf("the kubelet of %s does not have %s", p.name, akriv0.ResourceName(p.instance.Name)), expectation{
		Wait: awaits("its next report", latest(since...), advertiseTimeout),
		cause: Cause{
			ID: ResourceNotAdvertised, Subject: subject("Node", "", p.name),
			Remedies: p.readPods("Check that device-plugin-host runs on the node.", p.name, devicePluginHost),
		},
	})
	if link.State == Broken {
		explainPods(p.Snapshot, &link.Causes[0], pods)
	}
	return link
}

// explainPods adds why one of the Pods does not run.
func explainPods(s *Snapshot, cause *Cause, pods []*corev1.Pod) {
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
