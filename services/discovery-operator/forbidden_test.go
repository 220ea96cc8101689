package operator_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
)

const account = "system:serviceaccount:akri:akri-discovery-operator"

// grant gives the account a right in the namespace of the test or in the cluster.
func (h *harness) grant(inCluster bool, rule rbacv1.PolicyRule) {
	h.t.Helper()
	meta, rules := metav1.ObjectMeta{Name: h.namespace}, []rbacv1.PolicyRule{rule}
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: account, APIGroup: rbacv1.GroupName}}
	if inCluster {
		create(h.t, "clusterroles", "", &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules})
		create(h.t, "clusterrolebindings", "", &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name}})
		return
	}
	create(h.t, "roles", h.namespace, &rbacv1.Role{ObjectMeta: meta, Rules: rules})
	create(h.t, "rolebindings", h.namespace, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name}})
}

func create[T any, PT interface {
	*T
	kube.Object
}](t *testing.T, resource, namespace string, object PT) {
	t.Helper()
	client, err := kube.NewClient[T, metav1.List, PT](
		server.Config(), rbacv1.SchemeGroupVersion.WithResource(resource), rbacv1.AddToScheme)
	require.NoError(t, err)
	_, err = client.In(namespace).Create(t.Context(), object, metav1.CreateOptions{})
	require.NoError(t, err)
}

// The problem names the missing right. The Secret is read after the right is granted.
func TestForbiddenSecret(t *testing.T) {
	h := newHarness(t, forever)
	h.grant(true, rbacv1.PolicyRule{APIGroups: []string{"akri.sh"}, Resources: []string{"configurations"}, Verbs: []string{"get", "list", "watch"}})
	h.config.REST.Impersonate = rest.ImpersonationConfig{UserName: account}
	handler, _ := startHandler(t, h, "d", "x")
	h.secret("s", "first")
	h.start()
	key := h.apply(h.namespace, "forbidden", "foo", "d", password("s", true))
	message := h.problem(key, akriv0.ReasonPropertyForbidden).GetMessage()
	require.Contains(t, message, `discoveryProperty "password": read Secret `+h.namespace+"/s")
	require.Contains(t, message, `User "`+account+`" cannot get resource "secrets"`)
	require.Contains(t, message, `in the namespace "`+h.namespace+`"`)
	require.Contains(t, message, "rbac.secrets")
	require.Empty(t, handler.received())

	h.grant(false, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "watch"}})
	require.Empty(t, h.reported(key, true, "x").GetProblems())
	require.Equal(t, []string{"first"}, handler.passwords())
}
