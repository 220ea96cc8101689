package operator_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
)

const account = "system:serviceaccount:akri:akri-discovery-operator"

// grant lets the account do something in the test's namespace, or in all.
func (w *world) grant(everywhere bool, rule rbacv1.PolicyRule) {
	w.t.Helper()
	named, rules := metav1.ObjectMeta{Name: w.namespace}, []rbacv1.PolicyRule{rule}
	subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, Name: account, APIGroup: rbacv1.GroupName}}
	if everywhere {
		create(w.t, "clusterroles", "", &rbacv1.ClusterRole{ObjectMeta: named, Rules: rules})
		create(w.t, "clusterrolebindings", "", &rbacv1.ClusterRoleBinding{ObjectMeta: named, Subjects: subjects,
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: named.Name}})
		return
	}
	create(w.t, "roles", w.namespace, &rbacv1.Role{ObjectMeta: named, Rules: rules})
	create(w.t, "rolebindings", w.namespace, &rbacv1.RoleBinding{ObjectMeta: named, Subjects: subjects,
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: named.Name}})
}

func create[T interface {
	metav1.Object
	runtime.Object
}](t *testing.T, resource, namespace string, object T) {
	t.Helper()
	client, err := kube.NewClient(server.Config(), rbacv1.SchemeGroupVersion.WithResource(resource), rbacv1.AddToScheme,
		func() T { return object }, func() *metav1.List { return &metav1.List{} })
	require.NoError(t, err)
	_, err = client.In(namespace).Create(t.Context(), object, metav1.CreateOptions{})
	require.NoError(t, err)
}

func TestASecretThatMayNotBeReadIsReportedWithTheRightThatLacksAndReadOnceItMay(t *testing.T) {
	w := newWorld(t, forever)
	w.grant(true, rbacv1.PolicyRule{APIGroups: []string{"akri.sh"}, Resources: []string{"configurations"}, Verbs: []string{"get", "list", "watch"}})
	w.config.REST.Impersonate = rest.ImpersonationConfig{UserName: account}
	handler, _ := serving(t, w, "d", "x")
	w.secret("s", "first")
	w.start()
	key := w.apply(w.namespace, "forbidden", "foo", "d", password("s", true))
	message := w.problem(key, akriv0.ReasonPropertyForbidden).GetMessage()
	require.Contains(t, message, `discoveryProperty "password": read Secret `+w.namespace+"/s")
	require.Contains(t, message, `User "`+account+`" cannot get resource "secrets"`)
	require.Contains(t, message, `in the namespace "`+w.namespace+`"`)
	require.Contains(t, message, "rbac.secrets")
	require.Empty(t, handler.asked())

	w.grant(false, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "watch"}})
	require.Empty(t, w.reported(key, true, "x").GetProblems())
	require.Equal(t, []string{"first"}, handler.passwords())
}
