package explain

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
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
}

// Services returns the workloads of Akri, by component.
func (s *Snapshot) Services() []Service {
	var services []Service
	for i := range s.DaemonSets {
		d := &s.DaemonSets[i]
		services = append(services, s.service(Service{
			Component: d.Labels[ComponentLabel], Kind: "DaemonSet", Namespace: d.Namespace, Name: d.Name,
			Desired: d.Status.DesiredNumberScheduled, Ready: d.Status.NumberReady,
		}))
	}
	for i := range s.Deployments {
		d := &s.Deployments[i]
		desired := int32(1)
		if d.Spec.Replicas != nil {
			desired = *d.Spec.Replicas
		}
		services = append(services, s.service(Service{
			Component: d.Labels[ComponentLabel], Kind: "Deployment", Namespace: d.Namespace, Name: d.Name,
			Desired: desired, Ready: d.Status.ReadyReplicas,
		}))
	}
	slices.SortFunc(services, func(a, b Service) int {
		return strings.Compare(a.Component+"/"+a.Name, b.Component+"/"+b.Name)
	})
	return services
}

func (s Service) owns(pod *corev1.Pod) bool {
	return IsAkri(pod) && pod.Namespace == s.Namespace && pod.Labels[ComponentLabel] == s.Component && !ended(pod)
}

// service adds what the Pods of the service show.
func (s *Snapshot) service(service Service) Service {
	versions := map[string]bool{}
	for i := range s.Pods {
		pod := &s.Pods[i]
		if !service.owns(pod) {
			continue
		}
		if len(pod.Spec.Containers) > 0 {
			versions[imageVersion(pod.Spec.Containers[0].Image)] = true
		}
		if !PodReady(pod) && pod.Spec.NodeName != "" && !slices.Contains(service.NotReadyOn, pod.Spec.NodeName) {
			service.NotReadyOn = append(service.NotReadyOn, pod.Spec.NodeName)
		}
	}
	service.Versions = slices.Sorted(maps.Keys(versions))
	slices.Sort(service.NotReadyOn)
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
	seen := map[string]bool{}
	for _, service := range services {
		for _, version := range service.Versions {
			seen[version] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// ServicesLink checks the workloads of Akri.
func (s *Snapshot) ServicesLink() Link {
	if !s.readable("deployments") || !s.readable("daemonsets") {
		return skipped(LinkServices, "not checked: you may not list the workloads of Akri")
	}
	services := s.Services()
	if len(services) == 0 {
		return broken(LinkServices, Cause{
			ID: NotInstalled, Message: "no workload has the label " + PartOfLabel + "=" + PartOf,
			Remedies: []Remedy{{Text: "Install Akri.", Command: "helm install akri charts/akri --namespace akri-system --create-namespace --wait"}},
		})
	}
	var causes []Cause
	var withoutImage []Service
	stopped := false
	for _, service := range services {
		cause := s.notReady(service)
		if cause == nil {
			continue
		}
		stopped = stopped || service.Ready == 0
		if waiting := s.waiting(service); waiting == nil {
			causes = append(causes, *cause)
		} else if waiting.ID == ImageNotPulled && cause.ID == ServiceNotReady {
			withoutImage = append(withoutImage, service)
		} else {
			cause.Message += ": " + waiting.Message
			causes = append(causes, *cause)
		}
	}
	if len(withoutImage) > 0 {
		causes = append(causes, s.imagesNotPulled(withoutImage))
	}
	if cause := s.versionSkew(services); cause != nil {
		causes = append(causes, *cause)
	}
	message := fmt.Sprintf("%s, version %s", plural(len(services), "service"), strings.Join(Versions(services), ", "))
	switch {
	case stopped:
		slices.SortStableFunc(causes, func(a, b Cause) int { return rank(a.ID) - rank(b.ID) })
		return broken(LinkServices, causes...)
	case len(causes) > 0:
		return partial(LinkServices, causes[0].Message, causes...)
	default:
		return ok(LinkServices, message)
	}
}

// rank orders the causes of the services: the webhook has a more precise message than its Pods.
func rank(id CauseID) int {
	return slices.Index([]CauseID{WebhookUnavailable, ImageNotPulled, ServiceNotReady, VersionSkew}, id)
}

// waiting returns why a container of the service waits, or nil if none does.
func (s *Snapshot) waiting(service Service) *Cause {
	for i := range s.Pods {
		pod := &s.Pods[i]
		if !service.owns(pod) {
			continue
		}
		for j := range pod.Status.ContainerStatuses {
			if cause := containerCause(pod, &pod.Status.ContainerStatuses[j]); cause != nil {
				return cause
			}
		}
	}
	return nil
}

// imagesNotPulled returns one cause for all services whose images are not available, because they
// usually have the same registry and tag.
func (s *Snapshot) imagesNotPulled(services []Service) Cause {
	release, namespace := s.release()
	return Cause{
		ID: ImageNotPulled, Message: plural(len(services), "service") + " without an image: " + s.waiting(services[0]).Message,
		Remedies: []Remedy{{
			Text: "Set a registry and a tag that have the images, or copy the images to the nodes.",
			Command: fmt.Sprintf("helm upgrade %s charts/akri --namespace %s --reset-then-reuse-values --set global.image.registry=REGISTRY,global.image.tag=TAG",
				release, namespace),
		}},
	}
}

// notReady returns the cause if Pods of the service are not ready.
func (s *Snapshot) notReady(service Service) *Cause {
	if service.Ready >= service.Desired && (service.Desired > 0 || service.Kind == "DaemonSet") {
		return nil
	}
	message := fmt.Sprintf("%d of %s of %s ready", service.Ready, plural(int(service.Desired), "Pod"), service.Component)
	if len(service.NotReadyOn) > 0 {
		message += "; not ready on " + NodeList(service.NotReadyOn)
	}
	selector := fmt.Sprintf("--namespace %s --selector %s=%s", service.Namespace, ComponentLabel, service.Component)
	cause := &Cause{ID: ServiceNotReady, Message: message, Remedies: []Remedy{
		{Text: "Read why the Pods do not start.", Command: "kubectl describe pods " + selector},
		{Text: "Read their logs.", Command: "kubectl logs --prefix --tail=50 " + selector},
	}}
	if service.Desired == 0 {
		cause.Message = service.Component + " is scaled to 0"
		cause.Remedies = []Remedy{{
			Text:    "Start a replica.",
			Command: fmt.Sprintf("kubectl scale deployment %s --namespace %s --replicas=1", service.Name, service.Namespace),
		}}
	}
	if service.Component == brokerController && service.Ready == 0 && s.webhookRequired() {
		cause.ID = WebhookUnavailable
		cause.Message += "; the API server refuses new and changed Configurations"
	}
	return cause
}

// webhookRequired reports whether the API server refuses Configurations without the webhook.
func (s *Snapshot) webhookRequired() bool {
	for i := range s.Webhooks {
		for _, webhook := range s.Webhooks[i].Webhooks {
			if webhook.FailurePolicy == nil || *webhook.FailurePolicy == admissionregistrationv1.Fail {
				return true
			}
		}
	}
	return false
}

// versionSkew returns the cause if the Pods have more than one version.
func (s *Snapshot) versionSkew(services []Service) *Cause {
	versions := Versions(services)
	if len(versions) < 2 {
		return nil
	}
	var parts []string
	for _, version := range versions {
		var components []string
		for _, service := range services {
			if slices.Contains(service.Versions, version) {
				components = append(components, service.Component)
			}
		}
		parts = append(parts, version+": "+strings.Join(components, ", "))
	}
	release, namespace := s.release()
	return &Cause{
		ID: VersionSkew, Message: "the Pods of Akri have several versions (" + strings.Join(parts, "; ") + ")",
		Remedies: []Remedy{
			{Text: "Wait until an update is complete.", Command: fmt.Sprintf(
				"kubectl rollout status daemonset --namespace %s --selector %s=%s --timeout=5m", s.nodeNamespace(), PartOfLabel, PartOf)},
			{Text: "Or repeat the upgrade, and remove image tags of single services from the values.", Command: fmt.Sprintf(
				"helm upgrade %s charts/akri --namespace %s --reset-values --values VALUES.yaml --wait", release, namespace)},
		},
	}
}

// NodeWithout is a node on which the node services do not run.
type NodeWithout struct {
	Node string `json:"node"`
	// Taints that the DaemonSet does not tolerate.
	Taints []corev1.Taint `json:"taints,omitempty"`
}

// NodesWithoutAkri returns the nodes without a Pod of discovery-operator or the agent.
func (s *Snapshot) NodesWithoutAkri() []NodeWithout {
	tolerations, found := s.nodeTolerations()
	if !found || s.OneNamespace || !s.readable("pods") || !s.readable("nodes") {
		return nil
	}
	var nodes []NodeWithout
	for i := range s.Nodes {
		node := &s.Nodes[i]
		if len(s.podsOn(node.Name, discoveryOperator, agent)) > 0 {
			continue
		}
		without := NodeWithout{Node: node.Name}
		for _, taint := range node.Spec.Taints {
			if !tolerated(tolerations, taint) {
				without.Taints = append(without.Taints, taint)
			}
		}
		nodes = append(nodes, without)
	}
	return nodes
}

// nodeTolerations returns the tolerations of the node services.
func (s *Snapshot) nodeTolerations() ([]corev1.Toleration, bool) {
	for i := range s.DaemonSets {
		if component := s.DaemonSets[i].Labels[ComponentLabel]; component == discoveryOperator || component == agent {
			return s.DaemonSets[i].Spec.Template.Spec.Tolerations, true
		}
	}
	return nil, false
}

// tolerated reports whether a Pod of a DaemonSet with the tolerations is scheduled in spite of the
// taint. Kubernetes adds tolerations for the states of the node itself.
func tolerated(tolerations []corev1.Toleration, taint corev1.Taint) bool {
	if taint.Effect == corev1.TaintEffectPreferNoSchedule || strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
		return true
	}
	return slices.ContainsFunc(tolerations, func(t corev1.Toleration) bool {
		return t.ToleratesTaint(klog.Background(), &taint, true)
	})
}

// NodeWithoutCause returns why Akri does not run on the node.
func (s *Snapshot) NodeWithoutCause(node NodeWithout) Cause {
	release, namespace := s.release()
	cause := Cause{ID: NodeWithoutAkri, Message: "Akri does not run on " + node.Node}
	if len(node.Taints) == 0 {
		cause.Remedies = []Remedy{
			{Text: "Compare the labels of the node with global.nodePlane.nodeSelector.", Command: "kubectl get node " + node.Node + " --show-labels"},
			{Text: "Read the values.", Command: fmt.Sprintf("helm get values %s --namespace %s --all", release, namespace)},
		}
		cause.Remedies = append(cause.Remedies, s.forget(node.Node)...)
		return cause
	}
	var taints, tolerations []string
	for _, taint := range node.Taints {
		taints = append(taints, taint.ToString())
		tolerations = append(tolerations, fmt.Sprintf(`{"key":%q,"operator":"Equal","value":%q,"effect":%q}`, taint.Key, taint.Value, taint.Effect))
	}
	cause.Message += ", because it does not tolerate " + strings.Join(taints, ", ")
	cause.Remedies = []Remedy{
		{Text: "Tolerate the taint.", Command: fmt.Sprintf(
			"helm upgrade %s charts/akri --namespace %s --reset-then-reuse-values --set-json 'global.nodePlane.tolerations=[%s]'",
			release, namespace, strings.Join(tolerations, ","))},
		{Text: "Or remove the taint.", Command: "kubectl taint node " + node.Node + " " + strings.Join(taints, "- ") + "-"},
	}
	cause.Remedies = append(cause.Remedies, s.forget(node.Node)...)
	return cause
}

// forget is the remedy for a node that Akri should not run on. Its devices stay until then.
func (s *Snapshot) forget(node string) []Remedy {
	for i := range s.Instances {
		if slices.Contains(s.Instances[i].Spec.Nodes, node) {
			return []Remedy{{Text: "Or remove the devices of the node, if Akri should not run there.", Command: "kubectl akri forget " + node}}
		}
	}
	return nil
}

const maxNodes = 5

// NodeList lists at most maxNodes names.
func NodeList(names []string) string {
	if more := len(names) - maxNodes; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNodes], ", "), more)
	}
	return strings.Join(names, ", ")
}
