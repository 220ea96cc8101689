package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// podClaim is a ResourceClaim of a Pod.
type podClaim struct {
	// kind and name of the object that must exist, which has the requests.
	kind, name string
	// claim is nil while it is not created.
	claim *resourcev1.ResourceClaim
	// spec is nil if the object does not exist.
	spec *resourcev1.ResourceClaimSpec
}

func (c *podClaim) String() string { return c.kind + " " + c.name }

// edit returns the remedy to change the requests. Those of a claim cannot be changed.
func (c *podClaim) edit(pod *corev1.Pod, text string) Remedy {
	verb := "edit"
	if c.kind == claimKind {
		text += " A claim cannot be changed: delete the Pod and the claim, and create both again."
		verb = "delete"
	}
	return Remedy{Text: text, Command: fmt.Sprintf("kubectl %s %s %s --namespace %s", verb, strings.ToLower(c.kind), c.name, pod.Namespace)}
}

const (
	claimKind    = "ResourceClaim"
	templateKind = "ResourceClaimTemplate"
)

// claimsOf returns the claims that the Pod names and that request devices of Akri, or that do not
// exist.
func (s *Snapshot) claimsOf(pod *corev1.Pod) []podClaim {
	if !s.readable("resourceclaims") || !s.readable("resourceclaimtemplates") {
		return nil
	}
	var claims []podClaim
	for _, reference := range pod.Spec.ResourceClaims {
		claim := s.claimOf(pod, reference)
		if claim.spec == nil || requestsDevices(claim.spec) {
			claims = append(claims, claim)
		}
	}
	return claims
}

func (s *Snapshot) claimOf(pod *corev1.Pod, reference corev1.PodResourceClaim) podClaim {
	found := podClaim{kind: claimKind}
	name := reference.ResourceClaimName
	if template := reference.ResourceClaimTemplateName; template != nil {
		found.kind, found.name = templateKind, *template
		if t := find(s.ResourceClaimTemplates, pod.Namespace, *template); t != nil {
			found.spec = &t.Spec.Spec
		}
		for _, status := range pod.Status.ResourceClaimStatuses {
			if status.Name == reference.Name {
				name = status.ResourceClaimName
			}
		}
	} else if name != nil {
		found.name = *name
	}
	if name == nil {
		return found
	}
	if found.claim = find(s.ResourceClaims, pod.Namespace, *name); found.claim != nil {
		found.spec = &found.claim.Spec
	}
	return found
}

// ClaimsDevices reports whether the Pod names a claim that requests devices of Akri, or that does
// not exist.
func (s *Snapshot) ClaimsDevices(pod *corev1.Pod) bool { return len(s.claimsOf(pod)) > 0 }

// HasClaims reports whether the Pod names ResourceClaims, or has one for its extended resources.
func HasClaims(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// request is one way to satisfy a request of a claim: requests with firstAvailable have several.
type request struct {
	name string
	resourcev1.ExactDeviceRequest
}

// requestsOf returns the requests for devices of Akri, each with its alternatives. A request with
// an alternative of another driver is left out: nothing is known about its devices.
func requestsOf(spec *resourcev1.ResourceClaimSpec) [][]request {
	var requests [][]request
	for _, r := range spec.Devices.Requests {
		var alternatives []request
		if r.Exactly != nil {
			alternatives = append(alternatives, request{r.Name, *r.Exactly})
		}
		for _, sub := range r.FirstAvailable {
			alternatives = append(alternatives, request{r.Name + "/" + sub.Name, resourcev1.ExactDeviceRequest{
				DeviceClassName: sub.DeviceClassName, Selectors: sub.Selectors, AllocationMode: sub.AllocationMode, Count: sub.Count, Tolerations: sub.Tolerations,
			}})
		}
		if !slices.ContainsFunc(alternatives, func(r request) bool { return !isClass(r.DeviceClassName) }) {
			requests = append(requests, alternatives)
		}
	}
	return requests
}

func requestsDevices(spec *resourcev1.ResourceClaimSpec) bool { return len(requestsOf(spec)) > 0 }

// isClass reports whether the DeviceClass is that of all devices, of a Configuration or of an
// Instance.
func isClass(class string) bool {
	return class == akriv0.Driver || resourceOfClass(class) != ""
}

// resourceOfClass returns the name of the Configuration or the Instance, or nothing for all
// devices.
func resourceOfClass(class string) string {
	name, ok := strings.CutSuffix(class, "."+akriv0.Driver)
	if !ok {
		return ""
	}
	return name
}

// claimedDevices returns the Instances that claims of the Pod can get, or the name of a DeviceClass
// of which no Instance and no Configuration exists.
func (s *Snapshot) claimedDevices(pod *corev1.Pod) (instances []*akriv0.Instance, unknown string) {
	for _, claim := range s.claimsOf(pod) {
		if claim.spec == nil {
			continue
		}
		for _, alternatives := range requestsOf(claim.spec) {
			for _, r := range alternatives {
				name := resourceOfClass(r.DeviceClassName)
				if name != "" && len(s.instancesOfResource(name)) == 0 {
					unknown = name
				}
				for _, c := range s.selected(&r) {
					if !slices.Contains(instances, c.instance) {
						instances = append(instances, c.instance)
					}
				}
			}
		}
	}
	return instances, unknown
}

// candidate is a device in a ResourceSlice.
type candidate struct {
	instance *akriv0.Instance
	device   *resourcev1.Device
}

// candidates returns the devices of the DeviceClass, by name.
func (s *Snapshot) candidates(class string) []candidate {
	name := resourceOfClass(class)
	var found []candidate
	for i := range s.ResourceSlices {
		slice := &s.ResourceSlices[i]
		namespace, instanceName, _ := strings.Cut(slice.Spec.Pool.Name, "/")
		instance := find(s.Instances, namespace, instanceName)
		if instance == nil { // removed, with a taint
			instance = &akriv0.Instance{}
			instance.Namespace, instance.Name = namespace, instanceName
		}
		for j := range slice.Spec.Devices {
			device := &slice.Spec.Devices[j]
			if name == "" || name == instanceName || name == attribute(device, "configuration") {
				found = append(found, candidate{instance, device})
			}
		}
	}
	slices.SortFunc(found, func(a, b candidate) int { return cmp.Compare(a.device.Name, b.device.Name) })
	return found
}

func attribute(device *resourcev1.Device, name resourcev1.QualifiedName) string {
	if value := device.Attributes[name].StringValue; value != nil {
		return *value
	}
	return ""
}

// selected returns the devices that match the request. Without Selectors it returns none if the
// request has selectors.
func (s *Snapshot) selected(r *request) []candidate {
	if len(r.Selectors) > 0 && s.Selectors == nil {
		return nil
	}
	return slices.DeleteFunc(s.candidates(r.DeviceClassName), func(c candidate) bool { return s.mismatch(r, c) != "" })
}

// mismatch returns why the request does not select the device, or nothing.
func (s *Snapshot) mismatch(r *request, c candidate) string {
	for _, selector := range r.Selectors {
		if selector.CEL == nil {
			continue
		}
		if matches, err := s.Selectors.Matches(selector.CEL.Expression, akriv0.Driver, c.device); matches && err == nil {
			continue
		}
		return s.mismatchedTerm(selector.CEL.Expression, c.device)
	}
	return ""
}

// mismatchedTerm splits a selector that does not select the device. A term that selects it is left
// out.
func (s *Snapshot) mismatchedTerm(selector string, device *resourcev1.Device) string {
	var missed []string
	for _, term := range s.Selectors.Terms(selector) {
		matches, err := s.Selectors.Matches(term, akriv0.Driver, device)
		switch {
		case err != nil:
			missed = append(missed, fmt.Sprintf("%s: %v", term, err))
		case !matches:
			missed = append(missed, term+" is false")
		}
	}
	if len(missed) == 0 {
		return selector + " is false"
	}
	return strings.Join(missed, ", ")
}

// unallocated returns why the scheduler cannot allocate devices to a claim of the Pod, or nil if
// the reason is not known.
func (s *Snapshot) unallocated(pod *corev1.Pod) *Cause {
	for _, claim := range s.claimsOf(pod) {
		if claim.spec == nil || claim.claim != nil && claim.claim.Status.Allocation != nil || !s.readable("resourceslices") || !s.readable("instances") || s.OneNamespace {
			continue
		}
		for _, alternatives := range requestsOf(claim.spec) {
			if cause := s.unsatisfied(pod, &claim, alternatives); cause != nil {
				return cause
			}
		}
	}
	return nil
}

// unsatisfied returns the cause of the first alternative if there is one for all of them.
func (s *Snapshot) unsatisfied(pod *corev1.Pod, claim *podClaim, alternatives []request) (first *Cause) {
	for i := range alternatives {
		cause := s.unavailable(pod, claim, &alternatives[i])
		if cause == nil {
			return nil
		}
		if first == nil {
			first = cause
		}
	}
	return first
}

func (s *Snapshot) unavailable(pod *corev1.Pod, claim *podClaim, r *request) *Cause {
	if len(r.Selectors) > 0 && s.Selectors == nil {
		return nil
	}
	what := fmt.Sprintf("request %q of %s", r.name, claim)
	candidates := s.candidates(r.DeviceClassName)
	selected := s.selected(r)
	tolerated := slices.DeleteFunc(slices.Clone(selected), func(c candidate) bool { return taint(r, c.device) != "" })
	count := max(int(r.Count), 1)
	switch {
	case len(candidates) == 0:
		return s.noCandidates(pod, claim, r, what)
	case len(selected) < count:
		return s.notSelected(pod, claim, r, what, len(selected))
	case len(tolerated) < count:
		return tainted(pod, claim, r, what, selected)
	case s.countFree(tolerated) < count:
		return new(s.capacityUsed("the devices for the "+what, s.Slots(instancesOf(tolerated)...)))
	default:
		return nil
	}
}

// noCandidates returns the cause if no ResourceSlice has a device of the class: device plugins can
// hold all slots.
func (s *Snapshot) noCandidates(pod *corev1.Pod, claim *podClaim, r *request, what string) *Cause {
	if name := resourceOfClass(r.DeviceClassName); name != "" {
		if slots := s.Slots(s.instancesOfResource(name)...); len(slots) > 0 && freeSlots(slots) == 0 {
			return new(s.capacityUsed(akriv0.ResourceName(name), slots))
		}
	}
	return s.notSelected(pod, claim, r, what, 0)
}

func (s *Snapshot) notSelected(pod *corev1.Pod, claim *podClaim, r *request, what string, selected int) *Cause {
	cause := Cause{ID: NoDeviceSelected, Message: fmt.Sprintf("no device of the DeviceClass %s matches the %s", r.DeviceClassName, what), Closest: s.closest(r)}
	switch {
	case selected > 0:
		cause.Message = fmt.Sprintf("%s of the DeviceClass %s, of %d that are needed, for the %s", plural(selected, "device"), r.DeviceClassName, r.Count, what)
	case len(s.candidates(r.DeviceClassName)) == 0:
		cause.Message = fmt.Sprintf("the DeviceClass %s has no device, for the %s", r.DeviceClassName, what)
	}
	cause.Remedies = []Remedy{
		{Text: "List the devices that exist.", Command: "kubectl akri devices --all-namespaces"},
		claim.edit(pod, "Correct the request."),
	}
	if slices.ContainsFunc(cause.Closest, func(line string) bool { return strings.Contains(line, "no such key") }) {
		cause.Remedies = append(cause.Remedies, Remedy{
			Text:    "Or publish the property as an attribute, if the device has it.",
			Command: fmt.Sprintf("kubectl annotate configuration.akri.sh CONFIGURATION --namespace NAMESPACE %s=PROPERTY", akriv0.PropertiesAnnotation),
		})
	}
	return &cause
}

const maxClosest = 5

// closest describes the devices of the class that match the most of the selectors.
func (s *Snapshot) closest(r *request) []string {
	if s.Selectors == nil {
		return nil
	}
	type miss struct {
		text  string
		terms int
	}
	var misses []miss
	for _, c := range s.candidates(r.DeviceClassName) {
		if text := s.mismatch(r, c); text != "" {
			misses = append(misses, miss{fmt.Sprintf("%s/%s: %s", c.instance.Namespace, c.instance.Name, text), strings.Count(text, ", ")})
		}
	}
	slices.SortStableFunc(misses, func(a, b miss) int { return cmp.Compare(a.terms, b.terms) })
	var lines []string
	for _, m := range misses[:min(len(misses), maxClosest)] {
		lines = append(lines, m.text)
	}
	return slices.Compact(lines) // the slots of a device have the same line
}

func tainted(pod *corev1.Pod, claim *podClaim, r *request, what string, selected []candidate) *Cause {
	device := selected[slices.IndexFunc(selected, func(c candidate) bool { return taint(r, c.device) != "" })]
	return &Cause{
		ID: DeviceTainted,
		Message: fmt.Sprintf("%s matches the %s and has the taint %s, which the request does not tolerate",
			device.device.Name, what, taint(r, device.device)),
		Remedies: []Remedy{
			{Text: "Read whether the device is removed, which akri.sh/lost means.", Command: fmt.Sprintf("kubectl akri explain instance %s --namespace %s",
				device.instance.Name, device.instance.Namespace)},
			claim.edit(pod, "Or tolerate the taint in the request."),
		},
	}
}

// taint returns a taint of the device that keeps the request from it, or nothing.
func taint(r *request, device *resourcev1.Device) string {
	for _, t := range device.Taints {
		keeps := t.Effect == resourcev1.DeviceTaintEffectNoSchedule || t.Effect == resourcev1.DeviceTaintEffectNoExecute
		if keeps && !slices.ContainsFunc(r.Tolerations, func(toleration resourcev1.DeviceToleration) bool { return tolerates(toleration, t) }) {
			return fmt.Sprintf("%s:%s", t.Key, t.Effect)
		}
	}
	return ""
}

func tolerates(toleration resourcev1.DeviceToleration, taint resourcev1.DeviceTaint) bool {
	if toleration.Effect != "" && toleration.Effect != taint.Effect || toleration.Key != "" && toleration.Key != taint.Key {
		return false
	}
	return toleration.Operator == resourcev1.DeviceTolerationOpExists || toleration.Value == taint.Value
}

// countFree counts the devices with a free slot. A device that the scheduler allocates only once is
// a slot. Nothing is known about the slots of a device that is removed.
func (s *Snapshot) countFree(devices []candidate) int {
	free := 0
	for _, c := range devices {
		slots := slotsOf(c.instance)
		if c.device.Name != c.instance.Name {
			slots = slices.DeleteFunc(slots, func(slot Slot) bool { return slot.Slot != c.device.Name })
		}
		if freeSlots(slots) > 0 || len(slots) == 0 {
			free++
		}
	}
	return free
}

func instancesOf(devices []candidate) []*akriv0.Instance {
	var instances []*akriv0.Instance
	for _, c := range devices {
		if !slices.Contains(instances, c.instance) {
			instances = append(instances, c.instance)
		}
	}
	return instances
}

// slotsOfClaim returns the slots that the node holds for the claim.
func (s *Snapshot) slotsOfClaim(uid, node string) []string {
	var held []string
	for i := range s.Instances {
		for _, slot := range slotsOf(&s.Instances[i]) {
			if slot.Claim == uid && slot.Node == node {
				held = append(held, slot.Slot)
			}
		}
	}
	return held
}

// withoutSlots reports whether the claim has only devices that need no slot.
func withoutSlots(claim *resourcev1.ResourceClaim) bool {
	if claim.Status.Allocation == nil {
		return false
	}
	return !slices.ContainsFunc(claim.Status.Allocation.Devices.Results, func(r resourcev1.DeviceRequestAllocationResult) bool {
		return r.Driver == akriv0.Driver && (r.AdminAccess == nil || !*r.AdminAccess)
	})
}

// usersOfClaim returns the Pods on the node for which the claim is reserved, as namespace/name.
func (s *Snapshot) usersOfClaim(uid, node string) []string {
	index := slices.IndexFunc(s.ResourceClaims, func(claim resourcev1.ResourceClaim) bool { return string(claim.UID) == uid })
	if index < 0 {
		return nil
	}
	var pods []string
	for _, user := range s.ResourceClaims[index].Status.ReservedFor {
		if user.Resource != "pods" {
			continue
		}
		namespace := s.ResourceClaims[index].Namespace
		if pod := find(s.Pods, namespace, user.Name); pod == nil || pod.Spec.NodeName == node {
			pods = append(pods, namespace+"/"+user.Name)
		}
	}
	slices.Sort(pods)
	return pods
}

// missingClaim returns the cause if the Pod names a claim or template that does not exist.
func (s *Snapshot) missingClaim(pod *corev1.Pod) *Cause {
	for _, claim := range s.claimsOf(pod) {
		if claim.spec == nil {
			return &Cause{ID: ClaimNotFound, Message: fmt.Sprintf("%s does not exist in the namespace %s", &claim, pod.Namespace), Remedies: []Remedy{
				{Text: "Create it. The Pod need not be created again.", Command: "kubectl apply --namespace " + pod.Namespace + " -f CLAIM.yaml"},
				{Text: "These exist:", Command: "kubectl get resourceclaims,resourceclaimtemplates --namespace " + pod.Namespace},
			}}
		}
	}
	return nil
}

// notPrepared returns the cause if the kubelet of the Pod reports that a claim cannot be prepared.
// It starts no container before that.
func (s *Snapshot) notPrepared(pod *corev1.Pod) *Cause {
	started := slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReadyToStartContainers && c.Status == corev1.ConditionTrue
	})
	if pod.Status.Phase != corev1.PodPending || started {
		return nil
	}
	var last *corev1.Event
	for i := range s.Unprepared {
		event := &s.Unprepared[i]
		about := event.InvolvedObject
		if about.Namespace == pod.Namespace && about.Name == pod.Name && about.UID == pod.UID && (last == nil || last.LastTimestamp.Before(&event.LastTimestamp)) {
			last = event
		}
	}
	if last == nil {
		return nil
	}
	return &Cause{ID: ClaimNotPrepared, Message: last.Message, Remedies: []Remedy{
		{Text: "Read who holds the slots of the device. The kubelet tries again after 60 to 90 s.", Command: "kubectl akri slots --all-namespaces"},
		{Text: "Or read the logs of " + draKubeletPlugin + ".", Command: fmt.Sprintf("kubectl logs --tail=50 --prefix --namespace %s --selector '%s in (%s,%s)'",
			s.nodeNamespace(), ComponentLabel, draKubeletPlugin, agent)},
	}}
}

// bypassed returns the cause if the Pod runs on a node that uses claims and has none. The kubelet
// ignores a resource that no device plugin advertises.
func (s *Snapshot) bypassed(pod *corev1.Pod, name string) *Cause {
	node := find(s.Nodes, "", pod.Spec.NodeName)
	if node == nil || !s.usesClaims(node) || pod.Status.ExtendedResourceClaimStatus != nil {
		return nil
	}
	return &Cause{
		ID: SchedulerBypassed,
		Message: fmt.Sprintf("the Pod runs on %s without %s: it has no ResourceClaim, because the scheduler does not process a Pod that is created with spec.nodeName",
			pod.Spec.NodeName, akriv0.ResourceName(name)),
		Remedies: []Remedy{
			{Text: "Create the Pod with a nodeSelector instead of nodeName: {kubernetes.io/hostname: " + pod.Spec.NodeName + "}.", Command: deletePod(pod)},
		},
	}
}
