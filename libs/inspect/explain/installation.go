package explain

import (
	"cmp"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// Installation has the objects of Akri itself. What follows from them is independent of devices,
// nodes and Pods: the release and its namespaces, what the services need, and the remedies that
// change the release.
type Installation struct {
	DaemonSets  []appsv1.DaemonSet
	Deployments []appsv1.Deployment
	Webhooks    []admissionregistrationv1.ValidatingWebhookConfiguration
	// Resources is how Pods get devices, as the cluster has decided it. It is empty if the chart
	// decides that, if nothing is decided yet, and if the user may not read it.
	Resources string
	// Unmet are the objects that Akri needs, and that are missing or not of this version.
	Unmet []Requirement
}

// release returns the name and namespace of Akri's Helm release, as far as they are known.
func (in *Installation) release() (name, namespace string) {
	for _, d := range ofComponents(in.Deployments, InstanceWriter) {
		return cmp.Or(d.Labels[releaseLabel], PartOf), d.Namespace
	}
	return PartOf, "akri-system"
}

// Namespaces returns the namespaces of Akri.
func (in *Installation) Namespaces() []string {
	var namespaces []string
	for i := range in.DaemonSets {
		namespaces = append(namespaces, in.DaemonSets[i].Namespace)
	}
	for i := range in.Deployments {
		namespaces = append(namespaces, in.Deployments[i].Namespace)
	}
	slices.Sort(namespaces)
	return slices.Compact(namespaces)
}

// nodeNamespace returns the namespace of the node services.
func (in *Installation) nodeNamespace() string {
	if len(in.DaemonSets) > 0 {
		return in.DaemonSets[0].Namespace
	}
	_, namespace := in.release()
	return namespace
}

// ResourcesNamespace returns the namespace of the ConfigMap with how Pods get devices, if the
// installation can have one.
func (in *Installation) ResourcesNamespace() string {
	for _, controller := range ofComponents(in.Deployments, draController) {
		return controller.Namespace
	}
	return ""
}

// usesClaims reports whether Pods on the node get devices through ResourceClaims. The kubelet of
// such a node advertises no resources of Akri. dra-controller runs also with the agent.
func (in *Installation) usesClaims(node *corev1.Node) bool {
	if in.Resources != "" {
		return akriv0.ResourcesOf(node, in.Resources) == akriv0.ResourcesDRA
	}
	return node.Labels[akriv0.ResourcesLabel] != akriv0.ResourcesDevicePlugin &&
		(len(ofComponents(in.DaemonSets, draKubeletPlugin)) > 0 || len(ofComponents(in.Deployments, draController)) > 0)
}
