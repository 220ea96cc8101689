package explain

import (
	"cmp"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Pod explains a Pod that requests devices: a broker, or any other.
func Pod(s *Snapshot, namespace, name string) Explanation {
	e := Explanation{Kind: "Pod", Namespace: namespace, Name: name}
	pod := Find(s.Pods, namespace, name)
	if pod == nil {
		e.Links = []Link{broken(LinkCreated, noPod(namespace, name))}
		return e
	}
	instances, unknown := s.devicesOf(pod)
	if unknown != nil {
		e.Links = []Link{s.ServicesLink(), *unknown}
		return e
	}

	resource := skipped(LinkResource, "not checked: the devices depend on the ResourceClaims")
	if len(instances) > 0 { // otherwise no device matches the claims
		resource = s.resourceLink(pod.Spec.NodeName, instances)
	}
	e.Links = append(s.discoveryOf(instances), resource)
	e.Links = append(e.Links, s.podLinks(pod)...)
	return e
}

// devicesOf returns the Instances that the Pod can use, or the link that is broken because it
// requests none.
func (s *Snapshot) devicesOf(pod *corev1.Pod) ([]*akriv0.Instance, *Link) {
	requested := requestedDevices(pod)
	if len(requested) == 0 && !s.ClaimsDevices(pod) {
		return nil, new(broken(LinkResource, noDeviceRequested()))
	}
	instances, unknown := s.claimedDevices(pod)
	if unknown != "" {
		return nil, new(s.unknownResource(unknown))
	}
	for _, name := range requested {
		found := s.instancesOfResource(name)
		if len(found) == 0 {
			return nil, new(s.unknownResource(name))
		}
		instances = append(instances, found...)
	}
	return instances, nil
}

// instancesOfResource returns the Instances whose slots akri.sh/<name> stands for. Names are
// unique in the cluster.
func (s *Snapshot) instancesOfResource(name string) []*akriv0.Instance {
	return Where(s.Instances, func(i *akriv0.Instance) bool { return i.Name == name || i.Spec.ConfigurationName == name })
}

// unknownResource explains a resource that no Instance stands for. Its Configuration may exist.
func (s *Snapshot) unknownResource(name string) Link {
	for i := range s.Configurations {
		c := &s.Configurations[i]
		isInstance := akriv0.InstancePrefix(name) == akriv0.InstanceName(c.Name, "")
		if c.Name != name && !isInstance {
			continue
		}
		e := Explanation{Links: s.discovery(c)}
		if cause := e.Cause(); cause != nil {
			return broken(LinkResource, *cause)
		}
		if c.Name == name || len(s.InstancesOf(c)) == 0 {
			return pending(LinkResource, fmt.Sprintf("the Configuration %s/%s has no Instance yet", c.Namespace, c.Name))
		}
	}
	return broken(LinkResource, s.resourceUnknown(name))
}

// discoveryOf returns the links of the Configuration of the Instances. Their devices exist, so
// these links explain what may go wrong later, but not why the Pod does not run.
func (s *Snapshot) discoveryOf(instances []*akriv0.Instance) []Link {
	for _, instance := range instances {
		if c := Find(s.Configurations, instance.Namespace, instance.Spec.ConfigurationName); c != nil {
			return relax(s.discovery(c))
		}
	}
	return relax([]Link{s.ServicesLink()})
}

// place is an Instance on one of its nodes.
type place struct {
	instance *akriv0.Instance
	node     *corev1.Node
}

// places returns the Instances on their nodes, or on the node of the target.
func (t target) places() []place {
	var found []place
	for _, instance := range t.instances {
		for _, name := range instance.Spec.Nodes {
			if node := Find(t.Nodes, "", name); node != nil && (t.node == "" || t.node == name) {
				found = append(found, place{instance, node})
			}
		}
	}
	return found
}

// resourceLink checks that Pods on the node, or on all nodes of the Instances if it is empty, can
// get them.
func (s *Snapshot) resourceLink(node string, instances []*akriv0.Instance) Link {
	switch {
	case len(instances) == 0:
		return skipped(LinkResource, "no device is found")
	case !s.readable("nodes"):
		return skipped(LinkResource, "not checked: you may not list Nodes")
	}

	t := target{Snapshot: s, instances: instances, node: node}
	places, causes := t.places(), t.causes(LinkResource)
	switch {
	case len(causes) > 0 && len(causes) >= len(places):
		return broken(LinkResource, causes...)
	case len(causes) > 0:
		return partial(LinkResource, causes[0].Message, causes...)
	case len(places) == 0:
		return skipped(LinkResource, "no node sees the device")
	default:
		return ok(LinkResource, t.availableMessage(places))
	}
}

// availableMessage states how Pods on the nodes get the Instances.
func (t target) availableMessage(places []place) string {
	if len(t.instances) == 1 {
		return fmt.Sprintf("%s on %s", akriv0.ResourceName(t.instances[0].Name), NodeList(t.instances[0].Spec.Nodes))
	}
	claims := 0
	for _, place := range places {
		if t.usesClaims(place.node) {
			claims++
		}
	}
	switch claims {
	case 0:
		return "all nodes advertise their devices"
	case len(places):
		return draKubeletPlugin + " runs on all nodes of the devices"
	default:
		return "all nodes advertise their devices or run " + draKubeletPlugin
	}
}

// usesClaims reports whether Pods on the node get devices through ResourceClaims. The kubelet of
// such a node advertises no resources of Akri. dra-controller runs also with the agent.
func (s *Snapshot) usesClaims(node *corev1.Node) bool {
	return node.Labels[akriv0.ResourcesLabel] != akriv0.ResourcesDevicePlugin &&
		(len(ofComponents(s.DaemonSets, draKubeletPlugin)) > 0 || len(ofComponents(s.Deployments, draController)) > 0)
}

// podLinks returns the links of a Pod that exists.
func (s *Snapshot) podLinks(pod *corev1.Pod) []Link {
	links := []Link{ok(LinkCreated, pod.Namespace+"/"+pod.Name), s.scheduledLink(pod)}
	if links[1].State != OK {
		return append(links, skipped(LinkAdmitted, "not scheduled"), skipped(LinkSlot, "not scheduled"), skipped(LinkContainer, "not scheduled"))
	}
	links = append(links, s.admittedLink(pod))
	if links[2].State != OK {
		return append(links, skipped(LinkSlot, "not admitted"), skipped(LinkContainer, "not admitted"))
	}
	return append(links, s.slotLink(pod), s.containerLink(pod))
}

func (s *Snapshot) scheduledLink(pod *corev1.Pod) Link {
	if pod.Spec.NodeName != "" {
		return ok(LinkScheduled, "on "+pod.Spec.NodeName)
	}
	t := target{Snapshot: s, pod: pod}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			t.refusal = condition.Message
		}
	}
	if cause := t.firstCause(LinkScheduled); cause != nil {
		return broken(LinkScheduled, *cause)
	}
	return pending(LinkScheduled, "the scheduler has not decided yet")
}

// notAllocated is the message of the scheduler about a node whose devices it cannot allocate to the
// ResourceClaims of a Pod.
const notAllocated = "cannot allocate all claims"

// insufficient reports whether the scheduler finds too few of the resource in the status of nodes.
func (t target) insufficient(name string) bool {
	return strings.Contains(t.refusal, "Insufficient "+akriv0.ResourceName(name))
}

// admittedLink evaluates whether the kubelet accepted the Pod.
func (s *Snapshot) admittedLink(pod *corev1.Pod) Link {
	if pod.Status.Phase != corev1.PodFailed || len(pod.Status.ContainerStatuses) > 0 || pod.Status.Reason == "" {
		return ok(LinkAdmitted, "by the kubelet of "+pod.Spec.NodeName)
	}
	t := target{Snapshot: s, pod: pod, refusal: pod.Status.Reason + ": " + pod.Status.Message}
	return broken(LinkAdmitted, *t.firstCause(LinkAdmitted))
}

// slotLink evaluates whether the node of the Pod holds slots of what the Pod requests.
func (s *Snapshot) slotLink(pod *corev1.Pod) Link {
	if ended(pod) {
		return skipped(LinkSlot, "the Pod has ended")
	}
	held, missing, isClaim := s.slotsOfPod(pod)
	t := target{Snapshot: s, pod: pod}
	if pod.Status.Phase != corev1.PodPending { // until then the kubelet may not have allocated all devices
		t.unheld, t.unheldClaim = missing, isClaim
	}

	switch cause := t.firstCause(LinkSlot); {
	case cause != nil:
		return broken(LinkSlot, *cause)
	case missing != "":
		return pending(LinkSlot, "none yet")
	default:
		return ok(LinkSlot, cmp.Or(strings.Join(held, ", "), "none is needed"))
	}
}

// slotsOfPod returns the slots that the node of the Pod holds for it, and what the Pod requests and
// has no slot of, if anything.
func (s *Snapshot) slotsOfPod(pod *corev1.Pod) (held []string, missing string, isClaim bool) {
	claimed := pod.Status.ExtendedResourceClaimStatus != nil
	for _, name := range requestedDevices(pod) {
		resource := akriv0.ResourceName(name)
		// Slots of claims are not those of a Pod without a claim.
		found := heldSlots(s.instancesOfResource(name), pod.Spec.NodeName, func(slot Slot) bool {
			return slot.Claim == "" && slot.Resource == resource || slot.Claim != "" && claimed
		})
		if len(found) == 0 {
			return nil, resource, false
		}
		held = append(held, found...)
	}
	for _, claim := range s.claimsOf(pod) {
		if claim.claim == nil || withoutSlots(claim.claim) {
			continue
		}
		all := Where(s.Instances, func(*akriv0.Instance) bool { return true })
		found := heldSlots(all, pod.Spec.NodeName, func(slot Slot) bool { return slot.Claim == string(claim.claim.UID) })
		if len(found) == 0 {
			return nil, claim.String(), true
		}
		held = append(held, found...)
	}
	return held, "", false
}

// heldSlots returns those of the slots that the node holds.
func heldSlots(instances []*akriv0.Instance, node string, of func(Slot) bool) []string {
	var held []string
	for _, slot := range slotsOf(instances...) {
		if slot.Node == node && of(slot) {
			held = append(held, slot.Slot)
		}
	}
	return held
}

// containerLink evaluates whether the containers run.
func (s *Snapshot) containerLink(pod *corev1.Pod) Link {
	cause := target{Snapshot: s, pod: pod}.firstCause(LinkContainer)
	switch {
	case cause != nil:
		return broken(LinkContainer, *cause)
	case pod.Status.Phase == corev1.PodSucceeded:
		return ok(LinkContainer, "all have completed")
	case pod.Status.Phase == corev1.PodRunning && PodReady(pod):
		return ok(LinkContainer, "all are ready")
	case pod.Status.Phase == corev1.PodRunning:
		return pending(LinkContainer, "not ready yet")
	default:
		return pending(LinkContainer, "starting")
	}
}
