package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

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
	kind := strings.ToLower(c.kind)
	if c.kind == claimKind {
		return remedy(text+" A claim cannot be changed: delete the Pod and the claim, and create both again.",
			"kubectl delete %s %s --namespace %s", kind, c.name, pod.Namespace).interrupting(claimKind, pod.Namespace, c.name)
	}
	return remedy(text, "kubectl edit %s %s --namespace %s", kind, c.name, pod.Namespace)
}

const (
	claimKind    = "ResourceClaim"
	templateKind = "ResourceClaimTemplate"
)

// claims returns the claims that the Pod names and that request devices of Akri, or that do not
// exist.
func (t target) claims() []podClaim {
	if !t.readable("resourceclaims") || !t.readable("resourceclaimtemplates") {
		return nil
	}
	var claims []podClaim
	for _, reference := range t.pod.Spec.ResourceClaims {
		claim := t.claim(reference)
		if claim.spec == nil || len(requestsOf(claim)) > 0 {
			claims = append(claims, claim)
		}
	}
	return claims
}

func (t target) claim(reference corev1.PodResourceClaim) podClaim {
	found := podClaim{kind: claimKind}
	if name := reference.ResourceClaimTemplateName; name != nil {
		found.kind, found.name = templateKind, *name
		if template := Find(t.ResourceClaimTemplates, t.pod.Namespace, *name); template != nil {
			found.spec = &template.Spec.Spec
		}
	}

	// Without a name, the claim of the template is not created yet, or the Pod needs none.
	name, _, err := resourceclaim.Name(t.pod, &reference)
	if err != nil || name == nil {
		return found
	}
	found.name = cmp.Or(found.name, *name)
	if found.claim = Find(t.ResourceClaims, t.pod.Namespace, *name); found.claim != nil {
		found.spec = &found.claim.Spec
	}
	return found
}

// ClaimsDevices reports whether the Pod names a claim that requests devices of Akri, or that does
// not exist.
func (s *Snapshot) ClaimsDevices(pod *corev1.Pod) bool {
	return len(target{Snapshot: s, pod: pod}.claims()) > 0
}

// HasClaims reports whether the Pod names ResourceClaims, or has one for its extended resources.
func HasClaims(pod *corev1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || pod.Status.ExtendedResourceClaimStatus != nil
}

// ReasonUnprepared is that of the Event about a Pod whose ResourceClaims a node could not prepare.
const ReasonUnprepared = "FailedPrepareDynamicResources"

// request is a request of a claim, or one of its alternatives if it has firstAvailable.
type request struct {
	resourcev1.DeviceSubRequest

	claim podClaim
	// devices are those of the DeviceClass, selected those of them that the selectors select, and
	// tolerated those of them without a taint that keeps the request away.
	devices, selected, tolerated []candidate
}

func (r *request) String() string { return fmt.Sprintf("request %q of %s", r.Name, &r.claim) }

func (r *request) count() int { return max(int(r.Count), 1) }

// requestsOf returns the requests for devices of Akri, each with its alternatives. A request with
// an alternative of another driver is left out: nothing is known about its devices.
func requestsOf(claim podClaim) [][]request {
	var requests [][]request
	for _, r := range claim.spec.Devices.Requests {
		var alternatives []request
		if e := r.Exactly; e != nil {
			alternatives = append(alternatives, request{claim: claim, DeviceSubRequest: resourcev1.DeviceSubRequest{
				Name: r.Name, DeviceClassName: e.DeviceClassName, Selectors: e.Selectors, Count: e.Count, Tolerations: e.Tolerations,
			}})
		}
		for _, sub := range r.FirstAvailable {
			sub.Name = r.Name + "/" + sub.Name
			alternatives = append(alternatives, request{claim: claim, DeviceSubRequest: sub})
		}
		if !slices.ContainsFunc(alternatives, func(r request) bool { _, own := resourceOfClass(r.DeviceClassName); return !own }) {
			requests = append(requests, alternatives)
		}
	}
	return requests
}

// resourceOfClass returns the name of the Configuration or the Instance whose devices the
// DeviceClass has, or nothing for all devices, and whether the class is one of Akri.
func resourceOfClass(class string) (name string, own bool) {
	if class == akriv0.Driver {
		return "", true
	}
	return strings.CutSuffix(class, "."+akriv0.Driver)
}

// claimedDevices returns the Instances that claims of the Pod can get, or the name of a DeviceClass
// of which no Instance and no Configuration exists.
func (t target) claimedDevices() (instances []*akriv0.Instance, unknown string) {
	for _, claim := range t.claims() {
		if claim.spec == nil {
			continue
		}
		for _, r := range slices.Concat(requestsOf(claim)...) {
			name, _ := resourceOfClass(r.DeviceClassName)
			if name != "" && len(t.instancesOfResource(name)) == 0 {
				unknown = name
			}
			r.match(t.Snapshot)
			instances = appendInstances(instances, r.selected)
		}
	}
	return instances, unknown
}

func appendInstances(instances []*akriv0.Instance, devices []candidate) []*akriv0.Instance {
	for _, c := range devices {
		if !slices.Contains(instances, c.instance) {
			instances = append(instances, c.instance)
		}
	}
	return instances
}

// candidate is a device in a ResourceSlice.
type candidate struct {
	instance *akriv0.Instance
	device   *resourcev1.Device
}

// match finds the devices of the request. Without Selectors it selects none if the request has
// selectors.
func (r *request) match(s *Snapshot) {
	r.devices = candidates(s, r.DeviceClassName)
	for _, c := range r.devices {
		if len(r.Selectors) > 0 && s.Selectors == nil || len(mismatches(s.Selectors, r, c)) > 0 {
			continue
		}
		r.selected = append(r.selected, c)
		if taint(r, c.device) == "" {
			r.tolerated = append(r.tolerated, c)
		}
	}
}

// candidates returns the devices of the DeviceClass, by name.
func candidates(s *Snapshot, class string) []candidate {
	name, _ := resourceOfClass(class)
	var found []candidate
	for i := range s.ResourceSlices {
		slice := &s.ResourceSlices[i]
		for j := range slice.Spec.Devices {
			device := &slice.Spec.Devices[j]
			namespace, instanceName := akriv0.InstanceOfDevice(slice.Spec.Pool.Name, device.Name)
			instance := Find(s.Instances, namespace, instanceName)
			if instance == nil { // removed, with a taint
				instance = &akriv0.Instance{}
				instance.Namespace, instance.Name = namespace, instanceName
			}

			configuration := device.Attributes["configuration"].StringValue
			if name == "" || name == instanceName || configuration != nil && name == *configuration {
				found = append(found, candidate{instance, device})
			}
		}
	}

	slices.SortFunc(found, func(a, b candidate) int { return cmp.Compare(a.device.Name, b.device.Name) })
	return found
}

// mismatch is a term of a selector that does not select a device.
type mismatch struct {
	term string
	// err is the error of the term, or nil if it is false.
	err error
}

func (m mismatch) String() string {
	if m.err != nil {
		return fmt.Sprintf("%s: %v", m.term, m.err)
	}
	return m.term + " is false"
}

// mismatches returns the terms of the first selector that does not select the device, without those
// that do, or nothing if all selectors select it.
func mismatches(selectors Selectors, r *request, c candidate) []mismatch {
	for _, selector := range r.Selectors {
		if selector.CEL == nil {
			continue
		}
		if matches, err := selectors.Matches(selector.CEL.Expression, akriv0.Driver, c.device); matches && err == nil {
			continue
		}

		var missed []mismatch
		for _, term := range selectors.Terms(selector.CEL.Expression) {
			if matches, err := selectors.Matches(term, akriv0.Driver, c.device); err != nil || !matches {
				missed = append(missed, mismatch{term, err})
			}
		}
		if len(missed) == 0 {
			missed = []mismatch{{term: selector.CEL.Expression}}
		}
		return missed
	}
	return nil
}

// taint returns a taint of the device that keeps the request from it, or nothing.
func taint(r *request, device *resourcev1.Device) string {
	for _, t := range device.Taints {
		tolerates := func(toleration resourcev1.DeviceToleration) bool { return resourceclaim.ToleratesTaint(toleration, t) }
		keeps := t.Effect == resourcev1.DeviceTaintEffectNoSchedule || t.Effect == resourcev1.DeviceTaintEffectNoExecute
		if keeps && !slices.ContainsFunc(r.Tolerations, tolerates) {
			return fmt.Sprintf("%s:%s", t.Key, t.Effect)
		}
	}
	return ""
}

// unallocated returns the requests that the scheduler cannot allocate, by their first alternative.
// The scheduler states that it cannot, and an error of a selector, but not which devices come
// close.
func (t target) unallocated() []request {
	if t.refusal == "" || !t.readable("resourceslices") || !t.readable("instances") || t.OneNamespace {
		return nil
	}

	var requests []request
	for _, claim := range t.claims() {
		if claim.spec == nil || claim.claim != nil && claim.claim.Status.Allocation != nil {
			continue
		}
		for _, alternatives := range requestsOf(claim) {
			for i := range alternatives {
				alternatives[i].match(t.Snapshot)
			}
			if !slices.ContainsFunc(alternatives, func(r request) bool { return r.mayAllocate(t.Snapshot) }) {
				requests = append(requests, alternatives[0])
			}
		}
	}
	return requests
}

// mayAllocate reports whether enough devices for the request are free, or whether that is not
// known.
func (r *request) mayAllocate(s *Snapshot) bool {
	of, _ := r.exhausted(s)
	return len(r.Selectors) > 0 && s.Selectors == nil || of == "" && len(r.tolerated) >= r.count()
}

// withoutSlots reports whether the claim has only devices that need no slot.
func withoutSlots(claim *resourcev1.ResourceClaim) bool {
	allocation := claim.Status.Allocation
	return allocation != nil && !slices.ContainsFunc(allocation.Devices.Results, func(r resourcev1.DeviceRequestAllocationResult) bool {
		return r.Driver == akriv0.Driver && (r.AdminAccess == nil || !*r.AdminAccess)
	})
}
