package charts_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNamespaceOfNodes checks that the services of nodes, and all that they need, can have a
// namespace of their own.
func TestNamespaceOfNodes(t *testing.T) {
	rendered, err := render(t, set("global.nodePlane.namespace=nodes", "global.resources=dra", "console.enabled=true")...)
	require.NoError(t, err)
	names := map[string][]string{}
	for _, object := range decode[metav1.PartialObjectMetadata](t, rendered, "DaemonSet", "ServiceAccount", "NetworkPolicy", "ConfigMap", "Role", "RoleBinding") {
		if object.Namespace == "nodes" {
			names[object.Kind] = append(names[object.Kind], object.Name)
		}
	}
	services := []string{"akri-config-plugin-allocator", "akri-device-plugin-host", "akri-discovery-operator", "akri-dra-kubelet-plugin", "akri-registrar"}
	for _, handler := range sources(t).Handlers {
		if handler.Default {
			services = append(services, "akri-"+strings.TrimPrefix(handler.Service, "handler-")+"-discovery")
		}
	}
	require.ElementsMatch(t, services, names["ServiceAccount"])
	require.ElementsMatch(t, append(services, "akri"), names["NetworkPolicy"])
	require.Len(t, names["DaemonSet"], len(services))
	require.Equal(t, []string{"akri-ca"}, names["ConfigMap"])
	require.ElementsMatch(t, []string{"akri-controller", "akri-instance-writer"}, names["Role"])
	require.ElementsMatch(t, []string{"akri-controller", "akri-instance-writer"}, names["RoleBinding"])
	for _, workload := range decode[workload](t, rendered, "DaemonSet") {
		for _, variable := range workload.Spec.Template.Spec.Containers[0].Env {
			if variable.Name == "AKRI_INSTANCE_WRITER" {
				require.Equal(t, "dns:///akri-instance-writer.akri-system:9443", variable.Value)
			}
		}
	}
	require.Equal(t, documentedRights(t, "akri-agent "),
		grantedRights(t, "global.nodePlane.namespace=nodes", "global.resources=auto", "console.enabled=true", "global.metrics.authorization=true", "dra-controller.retryPreparations=true"))
	for _, binding := range decode[rbacv1.ClusterRoleBinding](t, rendered, "ClusterRoleBinding") {
		namespace := map[bool]string{true: "nodes", false: "akri-system"}[slices.Contains(services, binding.Name)]
		require.Equal(t, namespace, binding.Subjects[0].Namespace, binding.Name)
	}
}
