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
	e.Links = s.linksOfPod(pod)
	e.Verdicts = []Verdict{s.podLink(pod, e.Links).of("Pod", namespace, name)}
	return e
}

// podLink returns the state of a Pod with its chain. A Pod that runs has its device, also if no
// other Pod would get one.
func (s *Snapshot) podLink(pod *corev1.Pod, links []Link) Link {
	if own := chain(s.podLinks(pod)); own.State == Works {
		return own
	}
	return chain(links)
}

// linksOfPod returns the chain from the Discovery Handler to the containers of a Pod. Those of Akri
// need no device.
func (s *Snapshot) linksOfPod(pod *corev1.Pod) []Link {
	if IsAkri(pod) {
		return s.podLinks(pod)
	}
	instances, unknown := s.devicesOf(pod)
	if unknown != nil {
		return []Link{s.ServicesLink(), *unknown}
	}
	resource := skipped(LinkResource, "not checked: the devices depend on the ResourceClaims")
	if len(instances) > 0 { // otherwise no device matches the claims
		resource = s.resourceLink(pod.Spec.NodeName, instances, &pod.Spec)
	}
	return slices.Concat(s.discoveryOf(instances), []Link{resource}, s.podLinks(pod))
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
	return s.indexed().ofResource[name]
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
			return s.expectedDevice(c, e.Links)
		}
	}
	return broken(LinkResource, s.resourceUnknown(name))
}

// expectedDevice returns the link of a resource whose Configuration has no Instance yet.
func (s *Snapshot) expectedDevice(c *akriv0.Configuration, discovery []Link) Link {
	for _, link := range discovery {
		if link.State == Waiting {
			message := fmt.Sprintf("the Configuration %s/%s has no Instance yet", c.Namespace, c.Name)
			return Link{Name: LinkResource, State: Waiting, Message: message, Wait: link.Wait}
		}
	}
	return broken(LinkResource, s.resourceUnknown(c.Name))
}

// discoveryOf returns the links of the Configuration of the Instances. Their devices exist, so
// these links explain what may go wrong later, but not why the Pod does not run.
func (s *Snapshot) discoveryOf(instances []*akriv0.Instance) []Link {
	for _, instance := range instances {
		if c := s.configurationOf(instance); c != nil {
			return relax(s.discovery(c))
		}
	}
	return relax([]Link{s.ServicesLink()})
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

// resourceLink checks that Pods with the spec on the node, or on all nodes of the Instances if it
// is empty, can get them.
func (s *Snapshot) resourceLink(node string, instances []*akriv0.Instance, spec *corev1.PodSpec) Link {
	switch {
	case len(instances) == 0:
		return skipped(LinkResource, "no device is found")
	case !s.readable("nodes"):
		return skipped(LinkResource, "not checked: you may not list Nodes")
	}

	t := target{Snapshot: s, instances: instances, node: node}
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

// podLinks returns the links of a Pod that exists.
func (s *Snapshot) podLinks(pod *corev1.Pod) []Link {
	links := []Link{works(LinkCreated, pod.Namespace+"/"+pod.Name), s.scheduledLink(pod)}
	if links[1].State != Works {
		return append(links, skipped(LinkAdmitted, "not scheduled"), skipped(LinkSlot, "not scheduled"), skipped(LinkContainer, "not scheduled"))
	}
	links = append(links, s.admittedLink(pod))
	if links[2].State != Works {
		return append(links, skipped(LinkSlot, "not admitted"), skipped(LinkContainer, "not admitted"))
	}
	return append(links, s.slotLink(pod), s.containerLink(pod))
}

func (s *Snapshot) scheduledLink(pod *corev1.Pod) Link {
	if pod.Spec.NodeName != "" {
		return works(LinkScheduled, "on "+pod.Spec.NodeName)
	}
	if link := s.nodeOfPod(LinkScheduled, pod.Labels[targetNodeLabel]); link != nil {
		return *link
	}

	t := target{Snapshot: s, pod: pod}
	for _, condition := range pod.Status.Conditions {
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
		wait := akriv0.Wait{Awaited: "a free slot", Since: pod.CreationTimestamp}
		return Link{Name: LinkScheduled, State: Waiting, Message: cause.Message, Causes: []Cause{*cause}, Wait: &wait}
	default:
		return broken(LinkScheduled, *cause)
	}

	return s.expect(LinkScheduled, "the scheduler has not decided yet", expectation{
		Wait:  awaits("a decision of the scheduler", pod.CreationTimestamp, reportTimeout),
		cause: Cause{Remedies: []Remedy{describePod("Read the Events of the Pod, and check that kube-scheduler runs.", pod)}},
	})
}

// targetNodeLabel is the label of a broker with the node that it is for.
const targetNodeLabel = "akri.sh/target-node"

// nodeOfPod returns a link if the node of a Pod is not ready: the state of its containers is that
// of an earlier time.
func (s *Snapshot) nodeOfPod(name, node string) *Link {
	switch found := s.nodeNamed(node); {
	case found == nil || NodeReady(found):
		return nil
	case found.Spec.Unschedulable:
		return &Link{Name: name, State: OutOfService, Message: cordonedMessage(found)}
	default:
		return new(broken(name, notReadyNode(found)))
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
func (s *Snapshot) admittedLink(pod *corev1.Pod) Link {
	if pod.Status.Phase != corev1.PodFailed || len(pod.Status.ContainerStatuses) > 0 || pod.Status.Reason == "" {
		return works(LinkAdmitted, "by the kubelet of "+pod.Spec.NodeName)
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
	case cause != nil && cause.byEvent:
		e := start(pod, "prepared ResourceClaims")
		e.cause = *cause
		return s.expect(LinkSlot, cmp.Or(strings.Join(held, ", "), "none yet"), e)
	case cause != nil:
		return broken(LinkSlot, *cause)
	case missing != "":
		return s.expect(LinkSlot, "none yet", start(pod, "a slot"))
	default:
		return works(LinkSlot, cmp.Or(strings.Join(held, ", "), "none is needed"))
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
	if link := s.nodeOfPod(LinkContainer, pod.Spec.NodeName); link != nil && !ended(pod) {
		return *link
	}

	cause := target{Snapshot: s, pod: pod}.firstCause(LinkContainer)
	switch {
	case cause != nil && cause.byEvent:
		e := start(pod, "containers that run")
		e.cause = *cause
		return s.expect(LinkContainer, "starting", e)
	case cause != nil:
		return broken(LinkContainer, *cause)
	case pod.Status.Phase == corev1.PodSucceeded:
		return works(LinkContainer, "all have completed")
	case pod.Status.Phase == corev1.PodRunning && PodReady(pod):
		return works(LinkContainer, "all are ready")
	case pod.Status.Phase == corev1.PodRunning:
		return s.expect(LinkContainer, "not ready yet", start(pod, "a Pod that is ready"))
	default:
		return s.expect(LinkContainer, "starting", start(pod, "containers that run"))
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
