package command_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/cluster"
	"akri.sh/libs/inspect/explain"
	"akri.sh/libs/kube/kubetest"
	"akri.sh/libs/pki"
	"akri.sh/tools/kubectl-akri/check"
	"akri.sh/tools/kubectl-akri/internal/command"
)

// api is an API server with objects of an installation, and no process of it.
type api struct {
	*testing.T
	server *kubetest.Server
	client *cluster.Client
}

const namespace = "akri-system"

func newAPI(t *testing.T, flags ...string) api {
	t.Helper()
	server, err := kubetest.Start(t.Context(), flags...)
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	client, err := cluster.New(server.Config())
	require.NoError(t, err)
	a := api{t, server, client}

	core := client.Kubernetes.CoreV1()
	_, err = core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = core.Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	labels := map[string]string{explain.PartOfLabel: explain.PartOf, explain.ComponentLabel: "instance-writer"}
	_, err = client.Kubernetes.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "akri-instance-writer", Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	configuration := &akriv0.Configuration{ObjectMeta: metav1.ObjectMeta{Name: "camera"}}
	configuration.Spec.DiscoveryHandler.Name = "onvif"
	configuration.Spec.Nodes = &akriv0.AllowedNodes{MatchLabels: map[string]string{akriv0.NodeRestrictionPrefix + "site": "north"}}
	_, err = client.Configurations.In(namespace).Create(t.Context(), configuration, metav1.CreateOptions{})
	require.NoError(t, err)
	return a
}

// bind grants the ClusterRole to the subject.
func (a api) bind(role string, subject rbacv1.Subject) {
	a.Helper()
	_, err := a.client.Kubernetes.RbacV1().ClusterRoleBindings().Create(a.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: subject.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}, Subjects: []rbacv1.Subject{subject},
	}, metav1.CreateOptions{})
	require.NoError(a, err)
}

// token returns the token of a new user that may only read.
func (a api) token() string {
	a.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "auditor"}}
	accounts := a.client.Kubernetes.CoreV1().ServiceAccounts(namespace)
	_, err := accounts.Create(a.Context(), account, metav1.CreateOptions{})
	require.NoError(a, err)
	_, err = a.client.Kubernetes.RbacV1().ClusterRoles().Create(a.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "read"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}}},
	}, metav1.CreateOptions{})
	require.NoError(a, err)
	a.bind("read", rbacv1.Subject{Kind: "ServiceAccount", Namespace: namespace, Name: account.Name})
	request, err := accounts.CreateToken(a.Context(), account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(a, err)
	return request.Status.Token
}

// check returns the first result of `kubectl akri check` with the name.
func (a api) check(name, token string, flags ...string) check.Result {
	a.Helper()
	results := a.checks(token, flags...)
	i := slices.IndexFunc(results, func(r check.Result) bool { return r.Name == name })
	require.GreaterOrEqual(a, i, 0, "%v", results)
	return results[i]
}

// kubeconfig writes a file for a user with the token, or with all rights.
func (a api) kubeconfig(token string) (file string) {
	a.Helper()
	config := a.server.Config()
	if token == "" {
		token = config.BearerToken
	}
	file = filepath.Join(a.TempDir(), "kubeconfig")
	require.NoError(a, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, file))
	return file
}

// checks returns the results of `kubectl akri check`. Without a token, the user has all rights.
func (a api) checks(token string, flags ...string) []check.Result {
	a.Helper()
	root, output := command.New(), &bytes.Buffer{}
	root.SetOut(output)
	root.SetArgs(append([]string{"check", "--output=json", "--kubeconfig", a.kubeconfig(token)}, flags...))
	require.ErrorContains(a, root.ExecuteContext(a.Context()), "a check has failed", "no service runs")
	var results []check.Result
	require.NoError(a, json.Unmarshal(output.Bytes(), &results), output.String())
	return results
}

func (a api) node() *corev1.Node {
	a.Helper()
	node, err := a.client.Kubernetes.CoreV1().Nodes().Get(a.Context(), "node-a", metav1.GetOptions{})
	require.NoError(a, err)
	return node
}

// requireLabels checks the result about labels of nodes, and that the probe has not changed the
// Node.
func (a api) requireLabels(outcome check.Outcome, message, token string, flags ...string) {
	a.Helper()
	before := a.node()
	result := a.check("node labels", token, flags...)
	require.Equal(a, outcome, result.Outcome, result.Message)
	require.Contains(a, result.Message, message)
	require.Equal(a, before, a.node())
}

// TestNodeRestriction checks that the probe recognizes API servers with and without the admission
// plug-in, and users without the right to impersonate a kubelet.
func TestNodeRestriction(t *testing.T) {
	on := newAPI(t, "--authorization-mode=Node", "--enable-admission-plugins=NodeRestriction")
	on.requireLabels(check.Passed, "lets no kubelet set", "")
	on.requireLabels(check.Warning, `cannot impersonate resource "users"`, on.token())
	on.requireLabels(check.Warning, "--as", "", "--as=admin", "--as-group=system:masters")

	off := newAPI(t)
	off.requireLabels(check.Warning, `User "system:node:node-a" cannot patch resource "nodes"`, "")
	off.bind("system:node", rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "system:nodes"})
	off.requireLabels(check.Failed, "Secrets of akri-system/camera", "")
}

// TestPoliciesOfTheCluster checks that the policies and bindings are read by their names.
func TestPoliciesOfTheCluster(t *testing.T) {
	a := newAPI(t)
	results := []string{"rights of authors", "allowed namespaces"}
	for _, name := range results {
		require.Contains(t, a.check(name, "").Message, " does not exist")
	}
	admission := a.client.Kubernetes.AdmissionregistrationV1()
	for _, name := range check.PolicyNames() {
		policy := &admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		policy.Spec.MatchConstraints = &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
			RuleWithOperations: admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{"CREATE"},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			},
		}}}
		policy.Spec.Validations = []admissionregistrationv1.Validation{{Expression: "true"}}
		_, err := admission.ValidatingAdmissionPolicies().Create(t.Context(), policy, metav1.CreateOptions{})
		require.NoError(t, err)
		binding := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: policy.ObjectMeta}
		binding.Spec.PolicyName, binding.Spec.ValidationActions = name, []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny}
		_, err = admission.ValidatingAdmissionPolicyBindings().Create(t.Context(), binding, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for _, name := range results {
		require.Equal(t, check.Passed, a.check(name, "").Outcome)
	}
}

// TestCheckComparesTheCA checks that the Secret and the ConfigMap of the CA are read.
func TestCheckComparesTheCA(t *testing.T) {
	a := newAPI(t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: check.CAName}, Data: map[string][]byte{check.CAKey: []byte("new")}}
	_, err := a.client.Kubernetes.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{})
	require.NoError(t, err)
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: check.CAName}, Data: map[string]string{check.CAKey: "old"}}
	configMaps := a.client.Kubernetes.CoreV1().ConfigMaps(namespace)
	_, err = configMaps.Create(t.Context(), configMap, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, check.Failed, a.check("CA of instance-writer", "").Outcome)

	configMap.Data[check.CAKey] = "new"
	_, err = configMaps.Update(t.Context(), configMap, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, check.Passed, a.check("CA of instance-writer", "").Outcome)
}

// TestCheckReadsUpstreamValues checks that the values of upstream Akri's chart without their effect
// are shown, for releases in all namespaces that the user may read.
func TestCheckReadsUpstreamValues(t *testing.T) {
	a := newAPI(t)
	shown := func(token string) []string {
		var messages []string
		for _, result := range a.checks(token) {
			if result.Name == "values of upstream Akri" {
				require.Equal(t, check.Warning, result.Outcome)
				messages = append(messages, result.Message)
			}
		}
		return messages
	}
	require.Empty(t, shown(""))

	for _, release := range []struct{ namespace, name string }{{namespace, "akri"}, {"default", "cameras"}} {
		_, err := a.client.Kubernetes.CoreV1().ConfigMaps(release.namespace).Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: release.name + "-upstream-values", Labels: map[string]string{
				"app.kubernetes.io/part-of": "akri", "app.kubernetes.io/component": "upstream-values", "app.kubernetes.io/instance": release.name,
			}},
			Data: map[string]string{"b.of." + release.name: "no effect", "a.of." + release.name: "set c"},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	own := []string{"a.of.akri of the release akri-system/akri: set c", "b.of.akri of the release akri-system/akri: no effect"}
	other := []string{"a.of.cameras of the release default/cameras: set c", "b.of.cameras of the release default/cameras: no effect"}
	require.Equal(t, append(own, other...), shown(""))

	token := a.token()
	require.Equal(t, append(own, other...), shown(token))
	rights := a.client.Kubernetes.RbacV1()
	role, err := rights.ClusterRoles().Get(t.Context(), "read", metav1.GetOptions{})
	require.NoError(t, err)
	role.Rules[0].APIGroups = []string{akriv0.Group, "apps", "batch", "admissionregistration.k8s.io"} // no ConfigMaps
	_, err = rights.ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{})
	require.NoError(t, err)
	a.awaitEqual([]string{"not checked: you may not list ConfigMaps in the namespace akri-system"}, func() []string { return shown(token) })

	_, err = rights.Roles(namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "read"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = rights.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "read"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "read"},
		Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "auditor"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	a.awaitEqual(own, func() []string { return shown(token) })
}

// awaitEqual waits until the API server uses changed rights.
func (a api) awaitEqual(want []string, read func() []string) {
	a.Helper()
	require.EventuallyWithT(a, func(collect *assert.CollectT) { assert.Equal(collect, want, read()) }, time.Minute, 100*time.Millisecond)
}

// TestCheckSendsAConfiguration checks that the answer of the webhook counts, not its registration.
func TestCheckSendsAConfiguration(t *testing.T) {
	a := newAPI(t)
	webhooks := a.client.Kubernetes.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	registration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "akri-webhook-configuration", Labels: map[string]string{explain.PartOfLabel: explain.PartOf}},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name: "akri-webhook-configuration.akri.svc", AdmissionReviewVersions: []string{"v1"},
			SideEffects: new(admissionregistrationv1.SideEffectClassNone), FailurePolicy: new(admissionregistrationv1.Fail),
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{akriv0.Group}, APIVersions: []string{"v0"}, Resources: []string{"configurations"}},
			}},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{
				CABundle: caCertificate(t), Service: &admissionregistrationv1.ServiceReference{Namespace: namespace, Name: "akri-webhook-configuration"},
			},
		}},
	}
	registration, err := webhooks.Create(t.Context(), registration, metav1.CreateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool { // API servers use a new registration after some time
		result := a.check("webhook", "")
		return result.Outcome == check.Failed && strings.Contains(result.Message, "the API server cannot call it")
	}, time.Minute, 100*time.Millisecond)
	require.Equal(t, check.Warning, a.check("webhook", a.token()).Outcome, "no right to create Configurations")
	require.True(t, slices.ContainsFunc(a.checks(""), func(r check.Result) bool {
		return r.Outcome == check.Failed && strings.Contains(r.Message, "the Service akri-system/akri-webhook-configuration does not exist")
	}))

	registration.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Ignore)
	_, err = webhooks.Update(t.Context(), registration, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		result := a.check("webhook", "")
		return result.Outcome == check.Failed && strings.Contains(result.Message, "would store a Configuration that the webhook refuses")
	}, time.Minute, 100*time.Millisecond)
	all, err := a.client.Configurations.In("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, all.Items, 1, "a check stores nothing")
}

// TestCheckComparesTheRelease deletes random objects of a release.
func TestCheckComparesTheRelease(t *testing.T) {
	a := newAPI(t)
	core := a.client.Kubernetes.CoreV1()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	manifest := "# Source: akri/templates/empty.yaml\n---\napiVersion: monitoring.coreos.com/v1\nkind: PodMonitor\nmetadata: {name: akri}\n"
	missing := []string{"PodMonitor akri"} // the cluster does not have its type
	for i := range 6 {
		kind, name := []string{"ConfigMap", "ServiceAccount", "Namespace"}[i%3], fmt.Sprintf("object-%d", i)
		manifest += fmt.Sprintf("---\napiVersion: v1\nkind: %s\nmetadata: {name: %s}\n", kind, name)
		meta := metav1.ObjectMeta{Name: name}
		var err error
		switch isMissing := random.IntN(3) == 0; {
		case isMissing && kind == "Namespace":
			missing = append(missing, kind+" "+name)
		case isMissing:
			missing = append(missing, kind+" "+namespace+"/"+name)
		case kind == "ConfigMap":
			_, err = core.ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta}, metav1.CreateOptions{})
		case kind == "ServiceAccount":
			_, err = core.ServiceAccounts(namespace).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{})
		case kind == "Namespace":
			_, err = core.Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: meta}, metav1.CreateOptions{})
		}
		require.NoError(t, err)
	}
	anHourAgo := time.Now().Add(-time.Hour)
	a.storeRelease("other", 7, "other", "deployed", "", anHourAgo)
	a.storeRelease("akri", 9, "akri", "superseded", "---\napiVersion: v1\nkind: Secret\nmetadata: {name: earlier}\n", anHourAgo)
	a.storeRelease("akri", 10, "akri", "deployed", manifest, anHourAgo)

	result := a.check("Helm release", "")
	require.Equal(t, check.Failed, result.Outcome)
	_, names, _ := strings.Cut(result.Message, "do not exist: ")
	require.Equal(t, explain.NodeList(missing), names)
	require.Contains(t, result.Remedies[0].Command, "helm upgrade akri charts/akri --namespace akri-system")

	a.storeRelease("akri", 11, "akri", "pending-upgrade", manifest, time.Now())
	require.Equal(t, check.Warning, a.check("Helm release", "").Outcome, "Helm can still be running")
	a.storeRelease("akri", 12, "akri", "pending-upgrade", manifest, anHourAgo)
	result = a.check("Helm release", "")
	require.Equal(t, check.Failed, result.Outcome)
	require.Contains(t, result.Message, "Helm was interrupted")
	require.Contains(t, result.Remedies[0].Command, "helm rollback akri --namespace akri-system")
}

// storeRelease stores a revision of a release as Helm does.
func (a api) storeRelease(name string, revision int, chart, status, manifest string, modified time.Time) {
	a.Helper()
	content, err := json.Marshal(map[string]any{
		"name": name, "manifest": manifest, "chart": map[string]any{"metadata": map[string]any{"name": chart}},
	})
	require.NoError(a, err)
	zipped := &bytes.Buffer{}
	writer := gzip.NewWriter(zipped)
	_, err = writer.Write(content)
	require.NoError(a, err)
	require.NoError(a, writer.Close())
	_, err = a.client.Kubernetes.CoreV1().Secrets(namespace).Create(a.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("sh.helm.release.v1.%s.v%d", name, revision),
			Labels: map[string]string{
				"owner": "helm", "name": name, "version": strconv.Itoa(revision), "status": status,
				"modifiedAt": strconv.FormatInt(modified.Unix(), 10),
			},
		},
		Type: "helm.sh/release.v1", Data: map[string][]byte{"release": []byte(base64.StdEncoding.EncodeToString(zipped.Bytes()))},
	}, metav1.CreateOptions{})
	require.NoError(a, err)
}

// caCertificate returns the certificate of a CA.
func caCertificate(t *testing.T) []byte {
	t.Helper()
	issuer := pki.Issuer{Name: "test", Lifetimes: pki.Lifetimes{CA: time.Hour, Server: time.Hour}}
	authority, _, err := issuer.RenewCA(time.Now(), pki.Authority{}, false)
	require.NoError(t, err)
	return authority.Bundle
}

// The user learns that the Pod requests no device, and not that it does not exist.
func TestExplainPodWithoutDevice(t *testing.T) {
	a := newAPI(t)
	_, err := a.client.Kubernetes.CoreV1().Pods("default").Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "plain"},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "c", Image: "i"}}, AutomountServiceAccountToken: new(false),
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	explain := func(name string) string {
		root, output := command.New(), &bytes.Buffer{}
		root.SetOut(output)
		root.SetArgs([]string{"explain", "pod", name, "--namespace=default", "--kubeconfig", a.kubeconfig("")})
		require.NoError(t, root.ExecuteContext(t.Context()))
		return output.String()
	}
	require.Contains(t, explain("plain"), "NoDeviceRequested: no container of the Pod has a resource of akri.sh in its limits")
	require.Contains(t, explain("absent"), "NotFound")
}
