package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Pod explains a Pod that requests devices, a broker or any other, and one of Akri.
func Pod(s *Snapshot, namespace, name string) Explanation {
	e := Explanation{Kind: "Pod", Namespace: namespace, Name: name}
	pod := Find(s.Pods, namespace, name)
	if pod == nil {
		e.Links = []Link{broken(LinkCreated, noPod(namespace, name))}
		return e
	}
	t := target{Snapshot: s, pod: pod}
	own := t.podLinks()
	discovery, needed := t.withDevices(own)
	e.Links = slices.Concat(discovery, needed)

	state := chain(own)
	if state.State != Works {
		// A Pod that runs has its device, also if no other Pod would get one. One that does not run
		// does not wait for a link that works on some nodes.
		state = chain(slices.DeleteFunc(needed, func(l Link) bool { return l.State == Partly }))
	}
	e.Verdicts = []Verdict{state.of("Pod", namespace, name)}
	return e
}

// withDevices returns the chain from the Discovery Handler to the containers of the Pod, whose own
// links are known. The Pod does not need the links of the discovery, because its device exists.
// Pods of Akri need no device.
func (t target) withDevices(links []Link) (discovery, needed []Link) {
	if IsAkri(t.pod) {
		return nil, links
	}
	instances, unknown := t.devices()
	if unknown != nil {
		return nil, []Link{t.ServicesLink(), *unknown}
	}
	t.instances, t.node = instances, t.pod.Spec.NodeName
	resource := skipped(LinkResource, "not checked: the devices depend on the ResourceClaims")
	if len(instances) > 0 { // otherwise no device matches the claims
		resource = t.resourceLink(&t.pod.Spec)
	}
	return t.discoveryLinks(), append([]Link{resource}, links...)
}

// devices returns the Instances that the Pod can use, or the link that is broken because it
// requests none.
func (t target) devices() ([]*akriv0.Instance, *Link) {
	requested := requestedDevices(t.pod)
	if len(requested) == 0 && len(t.claims()) == 0 {
		return nil, new(broken(LinkResource, noDeviceRequested()))
	}
	instances, unknown := t.claimedDevices()
	if unknown != "" {
		return nil, new(unknownResource(t.Snapshot, unknown))
	}
	for _, name := range requested {
		found := t.instancesOfResource(name)
		if len(found) == 0 {
			return nil, new(unknownResource(t.Snapshot, name))
		}
		instances = append(instances, found...)
	}
	return instances, nil
}

// instancesOfResource returns the Instances whose slots akri.sh/<name> stands for. Names are
// unique in the cluster.
func (s *Snapshot) instancesOfResource(name string) []*akriv0.Instance {
	return s.indexed().ofResource[name]
}

// unknownResource explains a resource that no Instance stands for. Its Configuration may exist.
func unknownResource(s *Snapshot, name string) Link {
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
			return expectedDevice(s, c, e.Links)
		}
	}
	return broken(LinkResource, resourceUnknown(s, name))
}

// expectedDevice returns the link of a resource whose Configuration has no Instance yet.
func expectedDevice(s *Snapshot, c *akriv0.Configuration, discovery []Link) Link {
	for _, link := range discovery {
		if link.State == Waiting {
			message := fmt.Sprintf("the Configuration %s/%s has no Instance yet", c.Namespace, c.Name)
			return Link{Name: LinkResource, State: Waiting, Message: message, Wait: link.Wait}
		}
	}
	return broken(LinkResource, resourceUnknown(s, c.Name))
}

// discoveryLinks returns the links of the Configuration of the Instances. Their devices exist, so
// these links explain what may go wrong later, but not why the Pod does not run.
func (t target) discoveryLinks() []Link {
	for _, instance := range t.instances {
		if c := t.configurationOf(instance); c != nil {
			return relax(t.discovery(c))
		}
	}
	return relax([]Link{t.ServicesLink()})
}

// places returns the Instances on their nodes, or on the node of the target.
func (t target) places() []place {
	var found []place
	for _, instance := range t.instances {
		for _, name := range instance.Spec.Nodes {
			if p := placeOf(t.Snapshot, instance, name); p.node != nil && (t.node == "" || t.node == name) {
				found = append(found, p)
			}
		}
	}
	return found
}

// resourceLink checks that Pods with the spec, or with any if it is nil, can get the Instances on
// their nodes, or on the node of the target.
func (t target) resourceLink(spec *corev1.PodSpec) Link {
	switch {
	case len(t.instances) == 0:
		return skipped(LinkResource, "no device is found")
	case !t.readable("nodes"):
		return skipped(LinkResource, "not checked: you may not list Nodes")
	}

	places := t.places()
	if len(places) == 0 {
		return skipped(LinkResource, "no node sees the device")
	}
	var causes []Cause
	counts, result := map[State]int{}, works(LinkResource, t.availableMessage(places))
	for _, place := range places {
		link := place.link(spec)
		counts[link.State]++
		causes = append(causes, link.Causes...)
		if counts[Works] == 0 {
			result = link
		}
	}
	// Nodes can have one cause in common.
	causes = slices.CompactFunc(causes, func(a, b Cause) bool { return a.ID == b.ID && a.Message == b.Message })

	switch {
	case counts[Broken] == len(places):
		return broken(LinkResource, causes...)
	case counts[Broken] > 0:
		return partly(LinkResource, causes[0].Message, causes...)
	case counts[Works] > 0:
		return works(LinkResource, t.availableMessage(places))
	default:
		return result // waits, or is out of service
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

// UsesClaims reports whether Pods on the node get devices through ResourceClaims.
func (s *Snapshot) UsesClaims(node string) bool {
	found := s.nodeNamed(node)
	return found != nil && s.usesClaims(found)
}

// podLinks returns the links of the Pod itself.
func (t target) podLinks() []Link {
	links := []Link{works(LinkCreated, t.pod.Namespace+"/"+t.pod.Name), t.scheduledLink()}
	if links[1].State != Works {
		return append(links, skipped(LinkAdmitted, "not scheduled"), skipped(LinkSlot, "not scheduled"), skipped(LinkContainer, "not scheduled"))
	}
	links = append(links, t.admittedLink())
	if links[2].State != Works {
		return append(links, skipped(LinkSlot, "not admitted"), skipped(LinkContainer, "not admitted"))
	}
	return append(links, t.slotLink(), t.containerLink())
}

func (t target) scheduledLink() Link {
	if t.pod.Spec.NodeName != "" {
		return works(LinkScheduled, "on "+t.pod.Spec.NodeName)
	}
	if link := unreadyLink(LinkScheduled, t.nodeNamed(t.pod.Labels[targetNodeLabel])); link != nil {
		return *link
	}

	for _, condition := range t.pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			t.refusal = condition.Message
		}
	}

	cause := t.firstCause(LinkScheduled)
	switch {
	case cause == nil:
	case cause.ID == Unschedulable: // the scheduler's message alone explains nothing; conditions have no evidence
		cause.Message = strings.Join(append([]string{strings.TrimSuffix(cause.Message, ".")}, t.nodeReasons()...), "; ")
	case len(cause.Evidence) == 0:
		cause.Evidence = t.nodeReasons()
	}

	switch {
	case cause == nil:
	case cause.ID == CapacityUsed:
		// No fault: the Pod runs when another one ends.
		wait := akriv0.Wait{Awaited: "a free slot", Since: t.pod.CreationTimestamp}
		return Link{Name: LinkScheduled, State: Waiting, Message: cause.Message, Causes: []Cause{*cause}, Wait: &wait}
	default:
		return broken(LinkScheduled, *cause)
	}

	return t.expect(LinkScheduled, "the scheduler has not decided yet", expectation{
		Wait:  awaits("a decision of the scheduler", t.pod.CreationTimestamp, reportTimeout),
		cause: Cause{Remedies: []Remedy{describePod("Read the Events of the Pod, and check that kube-scheduler runs.", t.pod)}},
	})
}

// targetNodeLabel is the label of a broker with the node that it is for.
const targetNodeLabel = "akri.sh/target-node"

// unreadyLink returns a link if the node of a Pod, which may be nil, is not ready: the state of the
// containers is that of an earlier time.
func unreadyLink(name string, node *corev1.Node) *Link {
	switch {
	case node == nil || NodeReady(node):
		return nil
	case node.Spec.Unschedulable:
		return &Link{Name: name, State: OutOfService, Message: cordonedMessage(node)}
	default:
		return new(broken(name, notReadyNode(node)))
	}
}

// notAllocated is the message of the scheduler about a node whose devices it cannot allocate to the
// ResourceClaims of a Pod.
const notAllocated = "cannot allocate all claims"

// insufficient reports whether the scheduler finds too few of the resource in the status of nodes.
func (t target) insufficient(name string) bool {
	return strings.Contains(t.refusal, "Insufficient "+akriv0.ResourceName(name))
}

// admittedLink evaluates whether the kubelet accepted the Pod.
func (t target) admittedLink() Link {
	if t.pod.Status.Phase != corev1.PodFailed || len(t.pod.Status.ContainerStatuses) > 0 || t.pod.Status.Reason == "" {
		return works(LinkAdmitted, "by the kubelet of "+t.pod.Spec.NodeName)
	}
	t.refusal = t.pod.Status.Reason + ": " + t.pod.Status.Message
	return broken(LinkAdmitted, *t.firstCause(LinkAdmitted))
}

// slotLink evaluates whether the node of the Pod holds slots of what the Pod requests.
func (t target) slotLink() Link {
	if ended(t.pod) {
		return skipped(LinkSlot, "the Pod has ended")
	}
	held, missing, isClaim := t.slotsOfPod()
	if t.pod.Status.Phase != corev1.PodPending { // until then the kubelet may not have allocated all devices
		t.unheld, t.unheldClaim = missing, isClaim
	}

	switch cause := t.firstCause(LinkSlot); {
	case cause != nil && cause.byEvent:
		e := start(t.pod, "prepared ResourceClaims")
		e.cause = *cause
		return t.expect(LinkSlot, cmp.Or(strings.Join(held, ", "), "none yet"), e)
	case cause != nil:
		return broken(LinkSlot, *cause)
	case missing != "":
		return t.expect(LinkSlot, "none yet", start(t.pod, "a slot"))
	default:
		return works(LinkSlot, cmp.Or(strings.Join(held, ", "), "none is needed"))
	}
}

// slotsOfPod returns the slots that the node of the Pod holds for it, and what the Pod requests and
// has no slot of, if anything.
func (t target) slotsOfPod() (held []string, missing string, isClaim bool) {
	claimed := t.pod.Status.ExtendedResourceClaimStatus != nil
	for _, name := range requestedDevices(t.pod) {
		resource := akriv0.ResourceName(name)
		// Slots of claims are not those of a Pod without a claim.
		found := heldSlots(t.instancesOfResource(name), t.pod.Spec.NodeName, func(slot Slot) bool {
			return slot.Claim == "" && slot.Resource == resource || slot.Claim != "" && claimed
		})
		if len(found) == 0 {
			return nil, resource, false
		}
		held = append(held, found...)
	}

	for _, claim := range t.claims() {
		if claim.claim == nil || withoutSlots(claim.claim) {
			continue
		}
		all := Where(t.Instances, func(*akriv0.Instance) bool { return true })
		found := heldSlots(all, t.pod.Spec.NodeName, func(slot Slot) bool { return slot.Claim == string(claim.claim.UID) })
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
func (t target) containerLink() Link {
	if link := unreadyLink(LinkContainer, t.nodeNamed(t.pod.Spec.NodeName)); link != nil && !ended(t.pod) {
		return *link
	}

	cause := t.firstCause(LinkContainer)
	switch {
	case cause != nil && cause.byEvent:
		e := start(t.pod, "containers that run")
		e.cause = *cause
		return t.expect(LinkContainer, "starting", e)
	case cause != nil:
		return broken(LinkContainer, *cause)
	case t.pod.Status.Phase == corev1.PodSucceeded:
		return works(LinkContainer, "all have completed")
	case t.pod.Status.Phase == corev1.PodRunning && PodReady(t.pod):
		return works(LinkContainer, "all are ready")
	case t.pod.Status.Phase == corev1.PodRunning:
		return t.expect(LinkContainer, "not ready yet", start(t.pod, "a Pod that is ready"))
	default:
		return t.startsContainers()
	}
}

// startTimeout is the time after which broker-controller, too, takes a Pod that does not run for
// failed.
const startTimeout = 5 * time.Minute

// start is the expectation that a Pod on a node starts.
func start(pod *corev1.Pod, awaited string) expectation {
	since := []metav1.Time{pod.CreationTimestamp}
	if pod.Status.StartTime != nil {
		since = append(since, *pod.Status.StartTime)
	}
	for _, status := range containers(pod) {
		if running := status.State.Running; running != nil {
			since = append(since, running.StartedAt)
		}
	}
	return expectation{
		Wait:  awaits(awaited, latest(since...), startTimeout),
		cause: Cause{Remedies: []Remedy{describePod("Read the Events of the Pod.", pod), readLogs(pod)}},
	}
}
