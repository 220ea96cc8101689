package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Pod explains a Pod that requests devices: a broker, or any other.
func Pod(s *Snapshot, namespace, name string) Explanation {
	e := Explanation{Kind: "Pod", Namespace: namespace, Name: name}
	pod := find(s.Pods, namespace, name)
	if pod == nil {
		e.Links = []Link{broken(LinkCreated, Cause{
			ID: NotFound, Message: fmt.Sprintf("no Pod %s that requests a device exists in the namespace %s", name, namespace),
			Remedies: []Remedy{{Text: "List the Pods, and read why one is not created.", Command: fmt.Sprintf("kubectl get pods,events --namespace %s", namespace)}},
		})}
		return e
	}
	instances, unknown := s.devicesOf(pod)
	if unknown != nil {
		e.Links = []Link{s.ServicesLink(), *unknown}
		return e
	}
	e.Links = s.discoveryOf(instances)
	switch {
	case len(instances) == 0: // no device matches the claims
		e.Links = append(e.Links, skipped(LinkResource, "not checked: the devices depend on the ResourceClaims"))
	case pod.Spec.NodeName == "":
		e.Links = append(e.Links, s.resources(instances...))
	default:
		e.Links = append(e.Links, s.resourceOn(pod.Spec.NodeName, instances))
	}
	e.Links = append(e.Links, s.podLinks(pod)...)
	return e
}

// devicesOf returns the Instances that the Pod can use, or the link that is broken because it
// requests none.
func (s *Snapshot) devicesOf(pod *corev1.Pod) ([]*akriv0.Instance, *Link) {
	requested := requestedDevices(pod)
	if len(requested) == 0 && !s.ClaimsDevices(pod) {
		link := broken(LinkResource, Cause{
			ID: NoDeviceRequested, Message: "no container of the Pod has a resource of " + akriv0.Group + " in its limits, and no ResourceClaim of it requests a device",
			Remedies: []Remedy{{Text: "Add a limit. These resources exist:", Command: "kubectl akri devices --all-namespaces"}},
		})
		return nil, &link
	}
	instances, unknown := s.claimedDevices(pod)
	if unknown != "" {
		link := s.unknownResource(unknown)
		return nil, &link
	}
	for _, name := range requested {
		found := s.instancesOfResource(name)
		if len(found) == 0 {
			link := s.unknownResource(name)
			return nil, &link
		}
		instances = append(instances, found...)
	}
	return instances, nil
}

// instancesOfResource returns the Instances whose slots akri.sh/<name> stands for. Names are
// unique in the cluster.
func (s *Snapshot) instancesOfResource(name string) []*akriv0.Instance {
	var found []*akriv0.Instance
	for i := range s.Instances {
		if instance := &s.Instances[i]; instance.Name == name || instance.Spec.ConfigurationName == name {
			found = append(found, instance)
		}
	}
	return found
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
	cause := Cause{ID: ResourceUnknown, Message: fmt.Sprintf("no Configuration and no Instance is named %q, so no node has %s", name, akriv0.ResourceName(name))}
	if similar := nearest(name, s.resourceNames()); similar != "" {
		cause.Message += fmt.Sprintf("; the nearest name is %s", akriv0.ResourceName(similar))
	}
	cause.Remedies = []Remedy{
		{Text: "Name an existing resource in the limits or the claim of the Pod, and create it again.", Command: "kubectl akri devices --all-namespaces"},
	}
	return broken(LinkResource, cause)
}

func (s *Snapshot) resourceNames() []string {
	var names []string
	for i := range s.Configurations {
		names = append(names, s.Configurations[i].Name)
	}
	for i := range s.Instances {
		names = append(names, s.Instances[i].Name)
	}
	return names
}

// discoveryOf returns the links of the Configuration of the Instances. Their devices exist, so
// these links explain what may go wrong later, but not why the Pod does not run.
func (s *Snapshot) discoveryOf(instances []*akriv0.Instance) []Link {
	for _, instance := range instances {
		if c := find(s.Configurations, instance.Namespace, instance.Spec.ConfigurationName); c != nil {
			return relax(s.discovery(c))
		}
	}
	return relax([]Link{s.ServicesLink()})
}

// resources checks that Pods on the nodes of the Instances can get them.
func (s *Snapshot) resources(instances ...*akriv0.Instance) Link {
	if len(instances) == 0 {
		return skipped(LinkResource, "no device is found")
	}
	return s.advertised(instances, func(instance *akriv0.Instance) []string { return instance.Spec.Nodes })
}

func (s *Snapshot) resourceOn(node string, instances []*akriv0.Instance) Link {
	return s.advertised(instances, func(instance *akriv0.Instance) []string {
		return slices.DeleteFunc(slices.Clone(instance.Spec.Nodes), func(name string) bool { return name != node })
	})
}

func (s *Snapshot) advertised(instances []*akriv0.Instance, nodes func(*akriv0.Instance) []string) Link {
	if !s.readable("nodes") {
		return skipped(LinkResource, "not checked: you may not list Nodes")
	}
	var causes []Cause
	advertised := 0
	for _, instance := range instances {
		for _, name := range nodes(instance) {
			if cause := s.notAdvertised(name, instance); cause != nil {
				causes = append(causes, *cause)
			} else {
				advertised++
			}
		}
	}
	switch {
	case len(causes) > 0 && advertised == 0:
		return broken(LinkResource, causes...)
	case len(causes) > 0:
		return partial(LinkResource, causes[0].Message, causes...)
	case advertised == 0:
		return skipped(LinkResource, "no node sees the device")
	default:
		return ok(LinkResource, s.availableMessage(instances, nodes))
	}
}

// availableMessage states how Pods on the nodes get the Instances.
func (s *Snapshot) availableMessage(instances []*akriv0.Instance, nodes func(*akriv0.Instance) []string) string {
	if len(instances) == 1 {
		return fmt.Sprintf("%s on %s", akriv0.ResourceName(instances[0].Name), NodeList(instances[0].Spec.Nodes))
	}
	claims, advertise := false, false
	for _, instance := range instances {
		for _, name := range nodes(instance) {
			if node := find(s.Nodes, "", name); node != nil && s.usesClaims(node) {
				claims = true
			} else {
				advertise = true
			}
		}
	}
	switch {
	case claims && advertise:
		return "all nodes advertise their devices or run " + draKubeletPlugin
	case claims:
		return draKubeletPlugin + " runs on all nodes of the devices"
	default:
		return "all nodes advertise their devices"
	}
}

// notAdvertised returns the cause if the node does not have the resource of the Instance. A kubelet
// keeps the resources that it has once had.
func (s *Snapshot) notAdvertised(nodeName string, instance *akriv0.Instance) *Cause {
	node := find(s.Nodes, "", nodeName)
	if node == nil {
		return nil
	}
	if !NodeReady(node) {
		return &Cause{ID: NodeNotReady, Message: nodeName + " is not ready", Remedies: []Remedy{
			{Text: "Find out why.", Command: "kubectl describe node " + nodeName},
		}}
	}
	if s.usesClaims(node) {
		return s.noDriver(nodeName)
	}
	resource := corev1.ResourceName(akriv0.ResourceName(instance.Name))
	if capacity, has := node.Status.Capacity[resource]; has && !capacity.IsZero() {
		return nil
	}
	return &Cause{
		ID: ResourceNotAdvertised, Message: fmt.Sprintf("%s does not advertise %s; a new device takes up to 10s", nodeName, resource),
		Remedies: s.readPods("Check that device-plugin-host runs on the node.", nodeName, devicePluginHost),
	}
}

// readPods returns the remedies to look at the Pod of the service, or of the agent, on the node.
func (s *Snapshot) readPods(text, node, service string) []Remedy {
	selector := fmt.Sprintf("--namespace %s --selector '%s in (%s,%s)'", s.nodeNamespace(), ComponentLabel, service, agent)
	return []Remedy{
		{Text: text, Command: fmt.Sprintf("kubectl get pods --output wide %s --field-selector spec.nodeName=%s", selector, node)},
		{Text: "Read its logs.", Command: "kubectl logs --tail=50 --prefix " + selector},
	}
}

// usesClaims reports whether Pods on the node get devices through ResourceClaims. The kubelet of
// such a node advertises no resources of Akri. dra-controller runs also with the agent.
func (s *Snapshot) usesClaims(node *corev1.Node) bool {
	return node.Labels[akriv0.ResourcesLabel] != akriv0.ResourcesDevicePlugin &&
		(slices.ContainsFunc(s.DaemonSets, func(d appsv1.DaemonSet) bool { return d.Labels[ComponentLabel] == draKubeletPlugin }) ||
			slices.ContainsFunc(s.Deployments, func(d appsv1.Deployment) bool { return d.Labels[ComponentLabel] == draController }))
}

// noDriver returns the cause if dra-kubelet-plugin is not ready on the node.
func (s *Snapshot) noDriver(node string) *Cause {
	if !s.readable("pods") || s.OneNamespace || slices.ContainsFunc(s.podsOn(node, draKubeletPlugin, agent), PodReady) {
		return nil
	}
	return &Cause{
		ID: DriverMissing, Message: fmt.Sprintf("%s is not ready on %s, so no Pod there starts with a device", draKubeletPlugin, node),
		Remedies: s.readPods("Read whether its Pod is ready.", node, draKubeletPlugin),
	}
}

// podLinks returns the links of a Pod that exists.
func (s *Snapshot) podLinks(pod *corev1.Pod) []Link {
	links := []Link{ok(LinkCreated, pod.Namespace+"/"+pod.Name), s.scheduledLink(pod)}
	if links[1].State != OK {
		return append(links, skipped(LinkAdmitted, "not scheduled"), skipped(LinkSlot, "not scheduled"), skipped(LinkContainer, "not scheduled"))
	}
	admitted := s.admittedLink(pod)
	if admitted.State != OK {
		return append(links, admitted, skipped(LinkSlot, "not admitted"), skipped(LinkContainer, "not admitted"))
	}
	return append(links, admitted, s.slotLink(pod), containerLink(pod))
}

func (s *Snapshot) scheduledLink(pod *corev1.Pod) Link {
	if pod.Spec.NodeName != "" {
		return ok(LinkScheduled, "on "+pod.Spec.NodeName)
	}
	if cause := s.missingClaim(pod); cause != nil {
		return broken(LinkScheduled, *cause)
	}
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodScheduled && condition.Status == corev1.ConditionFalse {
			return broken(LinkScheduled, s.unschedulable(pod, condition.Message))
		}
	}
	return pending(LinkScheduled, "the scheduler has not decided yet")
}

// notAllocated is the message of the scheduler about a node whose devices it cannot allocate to the
// ResourceClaims of a Pod.
const notAllocated = "cannot allocate all claims"

// unschedulable returns the cause for the message of the scheduler: a device if one is used up,
// otherwise what the scheduler states.
func (s *Snapshot) unschedulable(pod *corev1.Pod, message string) Cause {
	if cause := s.unallocated(pod); cause != nil {
		return *cause
	}
	for name, count := range DeviceRequests(pod) {
		if !strings.Contains(message, "Insufficient "+akriv0.ResourceName(name)) && !strings.Contains(message, notAllocated) {
			continue
		}
		instances := s.instancesOfResource(name)
		slots := s.Slots(instances...)
		if int64(freeSlots(slots)) < count {
			return s.capacityUsed(akriv0.ResourceName(name), slots)
		}
		if cause := s.featureMissing(name, instances, message); cause != nil {
			return *cause
		}
	}
	return Cause{ID: Unschedulable, Message: message, Remedies: []Remedy{
		{Text: "Read what the scheduler states about each node.", Command: fmt.Sprintf("kubectl describe pod %s --namespace %s", pod.Name, pod.Namespace)},
		{Text: "Compare with the taints and free resources of the nodes that see the device.", Command: "kubectl describe nodes"},
	}}
}

// featureMissing returns the cause if the scheduler looks for the resource in the status of nodes,
// and all nodes that see the devices have them only for ResourceClaims.
func (s *Snapshot) featureMissing(name string, instances []*akriv0.Instance, message string) *Cause {
	if !strings.Contains(message, "Insufficient "+akriv0.ResourceName(name)) {
		return nil
	}
	last := ""
	for _, instance := range instances {
		for _, nodeName := range instance.Spec.Nodes {
			if node := find(s.Nodes, "", nodeName); node == nil || !s.usesClaims(node) {
				return nil
			}
			last = nodeName
		}
	}
	if last == "" {
		return nil
	}
	return &Cause{
		ID: FeatureMissing,
		Message: fmt.Sprintf("the nodes with %s use Dynamic Resource Allocation, and this cluster allocates it only through ResourceClaims; "+
			"requests as those of this Pod require Kubernetes 1.36", akriv0.ResourceName(name)),
		Remedies: []Remedy{
			{Text: "Let a node that sees the device use device plugins.", Command: fmt.Sprintf("kubectl label node %s %s=%s", last, akriv0.ResourcesLabel, akriv0.ResourcesDevicePlugin)},
			{Text: "Or read the version of the cluster, and whether the feature gate DRAExtendedResource is off.", Command: "kubectl version"},
		},
	}
}

// capacityUsed returns the cause for the slots of a resource or of several devices.
func (s *Snapshot) capacityUsed(of string, slots []Slot) Cause {
	cause := Cause{ID: CapacityUsed, Message: fmt.Sprintf("%d of %s of %s held, by %s",
		len(slots)-freeSlots(slots), plural(len(slots), "slot"), of, holders(slots))}
	if pod := s.holder(slots); pod != nil {
		cause.Remedies = append(cause.Remedies, Remedy{Text: "Delete a Pod that uses it.", Command: deletePod(pod)})
	}
	if len(slots) > 0 {
		cause.Remedies = append(cause.Remedies, Remedy{
			Text: "Or raise the capacity, if the device can serve more containers.",
			Command: fmt.Sprintf(`kubectl patch configuration.akri.sh %s --namespace %s --type=merge --patch '{"spec":{"capacity":CAPACITY}}'`,
				slots[0].Configuration, slots[0].Namespace),
		})
	}
	return cause
}

// holder returns a Pod that uses one of the slots, if possible one that is not created again.
func (s *Snapshot) holder(slots []Slot) (found *corev1.Pod) {
	for _, slot := range slots {
		for _, name := range slot.Pods {
			namespace, pod, _ := strings.Cut(name, "/")
			user := find(s.Pods, namespace, pod)
			if user == nil {
				continue
			}
			if metav1.GetControllerOf(user) == nil {
				return user
			}
			if found == nil {
				found = user
			}
		}
	}
	return found
}

// isUnavailable reports whether the kubelet has fewer healthy devices than the Pod requests. Its
// messages are those of `devicesToAllocate` in its device manager.
func isUnavailable(message string) bool {
	return strings.Contains(message, "requested number of devices unavailable") || strings.Contains(message, "no healthy devices present")
}

// admittedLink evaluates whether the kubelet accepted the Pod.
func (s *Snapshot) admittedLink(pod *corev1.Pod) Link {
	if pod.Status.Phase != corev1.PodFailed || len(pod.Status.ContainerStatuses) > 0 || pod.Status.Reason == "" {
		return ok(LinkAdmitted, "by the kubelet of "+pod.Spec.NodeName)
	}
	cause := Cause{ID: PodRejected, Message: pod.Status.Reason + ": " + pod.Status.Message}
	again := Remedy{Text: "Delete the Pod. Its controller creates another one; otherwise apply its manifest again.", Command: deletePod(pod)}
	switch {
	case isUnavailable(pod.Status.Message):
		cause.ID = OutdatedNodeStatus
		cause.Message = fmt.Sprintf("%s had no free slot when the Pod arrived. The scheduler did not know yet that another node had reserved it", pod.Spec.NodeName)
		if metav1.GetControllerOf(pod) == nil {
			again.Text = "Delete the Pod, and apply its manifest again."
		}
		cause.Remedies = []Remedy{again, {
			Text: "If it happens often: let the kubelets report sooner. Set nodeStatusUpdateFrequency: 1s and nodeStatusReportFrequency: 5m.",
		}}
	case pod.Status.Reason == "UnexpectedAdmissionError":
		cause.ID = AllocationRefused
		cause.Remedies = []Remedy{again, {
			Text: "Read the logs of device-plugin-host on the node.",
			Command: fmt.Sprintf("kubectl logs --tail=50 --namespace %s --selector %s=%s", s.nodeNamespace(),
				ComponentLabel, devicePluginHost),
		}}
	default:
		cause.Remedies = []Remedy{again, {Text: "Read what the node has left.", Command: "kubectl describe node " + pod.Spec.NodeName}}
	}
	return broken(LinkAdmitted, cause)
}

func deletePod(pod *corev1.Pod) string {
	return fmt.Sprintf("kubectl delete pod %s --namespace %s", pod.Name, pod.Namespace)
}

// slotLink evaluates whether the node of the Pod holds slots of what the Pod requests.
func (s *Snapshot) slotLink(pod *corev1.Pod) Link {
	if ended(pod) {
		return skipped(LinkSlot, "the Pod has ended")
	}
	if cause := s.notPrepared(pod); cause != nil {
		return broken(LinkSlot, *cause)
	}
	var held []string
	for _, name := range requestedDevices(pod) {
		found := s.heldSlots(pod, name)
		if len(found) == 0 {
			return s.noSlot(pod, akriv0.ResourceName(name), s.bypassed(pod, name))
		}
		held = append(held, found...)
	}
	for _, claim := range s.claimsOf(pod) {
		if claim.claim == nil || withoutSlots(claim.claim) {
			continue
		}
		found := s.slotsOfClaim(string(claim.claim.UID), pod.Spec.NodeName)
		if len(found) == 0 {
			return s.noSlot(pod, claim.String(), nil)
		}
		held = append(held, found...)
	}
	return ok(LinkSlot, cmp.Or(strings.Join(held, ", "), "none is needed"))
}

// noSlot returns the link of a Pod whose node holds no slot of what it requests.
func (s *Snapshot) noSlot(pod *corev1.Pod, of string, cause *Cause) Link {
	if pod.Status.Phase == corev1.PodPending {
		return pending(LinkSlot, "none yet")
	}
	if cause != nil {
		return broken(LinkSlot, *cause)
	}
	return broken(LinkSlot, Cause{
		ID: SlotNotHeld, Message: fmt.Sprintf("%s holds no slot of %s, although the Pod runs", pod.Spec.NodeName, of),
		Remedies: []Remedy{
			{Text: "Compare the slots with the Pods. The node takes a slot back if it is free.", Command: "kubectl akri slots --all-namespaces"},
			{Text: "Otherwise delete the Pod: another one may use the device, too.", Command: deletePod(pod)},
		},
	})
}

// heldSlots returns the slots that the node of the Pod holds through the resource. Those of claims
// are not those of a Pod without a claim.
func (s *Snapshot) heldSlots(pod *corev1.Pod, resource string) []string {
	claimed := pod.Status.ExtendedResourceClaimStatus != nil
	var held []string
	for _, instance := range s.instancesOfResource(resource) {
		for _, slot := range slotsOf(instance) {
			if slot.Node == pod.Spec.NodeName && (slot.Claim == "" && slot.Resource == akriv0.ResourceName(resource) || slot.Claim != "" && claimed) {
				held = append(held, slot.Slot)
			}
		}
	}
	return held
}

// containerLink evaluates whether the containers run.
func containerLink(pod *corev1.Pod) Link {
	statuses := slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses)
	for i := range statuses {
		if cause := containerCause(pod, &statuses[i]); cause != nil {
			return broken(LinkContainer, *cause)
		}
	}
	switch {
	case pod.Status.Phase == corev1.PodSucceeded:
		return ok(LinkContainer, "all have completed")
	case pod.Status.Phase == corev1.PodFailed:
		return broken(LinkContainer, Cause{ID: PodFailed, Message: failure(pod, statuses), Remedies: []Remedy{logs(pod, "", false)}})
	case pod.Status.Phase == corev1.PodRunning && PodReady(pod):
		return ok(LinkContainer, "all are ready")
	case pod.Status.Phase == corev1.PodRunning:
		return pending(LinkContainer, "not ready yet")
	default:
		return pending(LinkContainer, "starting")
	}
}

func failure(pod *corev1.Pod, statuses []corev1.ContainerStatus) string {
	for _, status := range statuses {
		if end := status.State.Terminated; end != nil && end.ExitCode != 0 {
			return fmt.Sprintf("container %q ended with exit code %d (%s)", status.Name, end.ExitCode, end.Reason)
		}
	}
	return strings.TrimSuffix(pod.Status.Reason+": "+pod.Status.Message, ": ")
}

func logs(pod *corev1.Pod, container string, previous bool) Remedy {
	command := fmt.Sprintf("kubectl logs %s --namespace %s", pod.Name, pod.Namespace)
	if container != "" {
		command += " --container " + container
	}
	if previous {
		command += " --previous"
	}
	return Remedy{Text: "Read the logs.", Command: command}
}

// containerCause returns the cause if the container waits because of an error.
func containerCause(pod *corev1.Pod, status *corev1.ContainerStatus) *Cause {
	waiting := status.State.Waiting
	if waiting == nil {
		return nil
	}
	describe := Remedy{Text: "Read the Events of the Pod.", Command: fmt.Sprintf("kubectl describe pod %s --namespace %s", pod.Name, pod.Namespace)}
	message := fmt.Sprintf("container %q: %s: %s", status.Name, waiting.Reason, waiting.Message)
	switch waiting.Reason {
	case "", "ContainerCreating", "PodInitializing":
		return nil
	case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable":
		return &Cause{ID: ImageNotPulled, Message: message, Remedies: []Remedy{
			{Text: "Correct the name of the image " + status.Image + ", or make it available to " + pod.Spec.NodeName + ".", Command: editOwner(pod)},
			{Text: "If the registry needs a login: create a Secret, and name it in imagePullSecrets.", Command: fmt.Sprintf(
				"kubectl create secret docker-registry NAME --namespace %s --docker-server=REGISTRY --docker-username=USER --docker-password=PASSWORD", pod.Namespace)},
		}}
	case "CrashLoopBackOff":
		return &Cause{ID: CrashLoop, Message: crash(status), Remedies: []Remedy{logs(pod, status.Name, true), describe}}
	default:
		return &Cause{ID: ContainerNotCreated, Message: message, Remedies: []Remedy{describe}}
	}
}

func crash(status *corev1.ContainerStatus) string {
	message := fmt.Sprintf("container %q ends repeatedly (%s)", status.Name, plural(int(status.RestartCount), "restart"))
	if end := status.LastTerminationState.Terminated; end != nil {
		message += fmt.Sprintf(", last with exit code %d (%s)", end.ExitCode, end.Reason)
	}
	return message
}

// editOwner returns the command that edits what the Pod is created from.
func editOwner(pod *corev1.Pod) string {
	if configuration := pod.Labels[akriv0.ConfigurationLabel]; configuration != "" {
		return fmt.Sprintf("kubectl edit configuration.akri.sh %s --namespace %s", configuration, pod.Namespace)
	}
	return fmt.Sprintf("kubectl edit pod %s --namespace %s", pod.Name, pod.Namespace)
}
