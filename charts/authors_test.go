package charts_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// The namespaces and the names of objects in the tests of authors. The author "ann" has a right if
// she is in the group that has its name.
const (
	tenant = "tenant"
	other  = "other"
	ann    = "ann"
	// editors may write Configurations.
	editors = "editors"
)

// The longest names of a namespace and of a handler.
var (
	longNamespace = strings.Repeat("n", 63)
	longHandler   = strings.Repeat("h", 127)
)

var objectNames = func() (names []string) {
	for i := range 18 {
		names = append(names, fmt.Sprintf("object-%d.x", i))
	}
	return names
}()

// authors are an API server with the policy akri-authors.
type authors struct {
	*testing.T
	admin dynamic.Interface
}

// newAuthors installs the policy as the chart does, and grants each right to a group.
func newAuthors(t *testing.T) authors {
	t.Helper()
	admin, err := dynamic.NewForConfig(server.Config())
	require.NoError(t, err)
	a := authors{t, admin}
	clientset, err := kubernetes.NewForConfig(server.Config())
	require.NoError(t, err)
	for _, namespace := range []string{tenant, other, longNamespace} {
		_, err := clientset.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
		if !apierrors.IsAlreadyExists(err) {
			require.NoError(t, err)
			a.grantAll(clientset, namespace)
		}
	}

	policy, err := render(t, "--show-only", "charts/broker-controller/templates/authors.yaml")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(file, []byte(policy), 0o600))
	_, err = run(t, "kubectl", "apply", "-f", file, "--kubeconfig", kubeconfig(t))
	require.NoError(t, err)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.ErrorContains(c, a.create(head, editors), "cannot use discoveryhandlers.akri.sh/debugEcho")
	}, time.Minute, 100*time.Millisecond, "the policy is in force")
	return a
}

// head is the smallest spec.
const head = `{discoveryHandler: {name: debugEcho}}`

// grantAll grants each right in a namespace to the group with its name, in the form of
// rightsOfChange.
func (a authors) grantAll(clientset kubernetes.Interface, namespace string) {
	a.Helper()
	grant := func(group string, rule rbacv1.PolicyRule) {
		name := "group-" + strings.NewReplacer(" ", ".", "/", ".").Replace(strings.TrimSpace(strings.ToLower(group)))
		meta := metav1.ObjectMeta{Name: name, Namespace: namespace}
		_, err := clientset.RbacV1().Roles(namespace).Create(a.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
		require.NoError(a, err)
		_, err = clientset.RbacV1().RoleBindings(namespace).Create(a.Context(), &rbacv1.RoleBinding{
			ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
		}, metav1.CreateOptions{})
		require.NoError(a, err)
	}
	grant(editors, rbacv1.PolicyRule{APIGroups: []string{akriv0.Group}, Resources: []string{"configurations"}, Verbs: []string{"*"}})
	for _, handler := range []string{"debugEcho", "onvif", longHandler} {
		grant("use discoveryhandlers "+namespace+" "+handler,
			rbacv1.PolicyRule{APIGroups: []string{akriv0.Group}, Resources: []string{"discoveryhandlers"}, ResourceNames: []string{handler}, Verbs: []string{"use"}})
	}
	for group, resource := range map[string]string{"": "pods", "batch": "jobs"} {
		grant("create "+resource+" "+namespace+" ", rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"create"}})
	}
	grant("create services "+namespace+" ", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"create"}})
	for _, resource := range []string{"secrets", "configmaps"} {
		for _, name := range objectNames {
			grant("get "+resource+" "+namespace+" "+name,
				rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, ResourceNames: []string{name}, Verbs: []string{"get"}})
		}
		grant("get "+resource+" "+namespace+" ", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{resource}, Verbs: []string{"get"}})
	}
}

// as returns a client of the author with the rights.
func (a authors) as(rights []string) dynamic.ResourceInterface {
	a.Helper()
	return a.in(tenant, rights)
}

func (a authors) in(namespace string, rights []string) dynamic.ResourceInterface {
	a.Helper()
	config := server.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: ann, Groups: append([]string{editors}, rights...)}
	client, err := dynamic.NewForConfig(config)
	require.NoError(a, err)
	return client.Resource(akriv0.ConfigurationResource).Namespace(namespace)
}

func configurationOf(t require.TestingT, spec string) *unstructured.Unstructured {
	content := map[string]any{}
	require.NoError(t, yaml.Unmarshal([]byte(spec), &content))
	return configurationWith(content)
}

func configurationWith(spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "akri.sh/v0", "kind": "Configuration", "metadata": map[string]any{"name": "authors", "namespace": tenant}, "spec": spec,
	}}
}

var dryRun = []string{metav1.DryRunAll}

// create creates a Configuration in a dry run as the author with the rights.
func (a authors) create(spec string, rights ...string) error {
	return a.createIn(tenant, spec, rights...)
}

func (a authors) createIn(namespace, spec string, rights ...string) error {
	configuration := configurationOf(a, spec)
	configuration.SetNamespace(namespace)
	_, err := a.in(namespace, rights).Create(a.Context(), configuration, metav1.CreateOptions{DryRun: dryRun})
	return err
}

// store stores a Configuration until the end of the test.
func (a authors) store(configuration *unstructured.Unstructured) *unstructured.Unstructured {
	a.Helper()
	client := a.admin.Resource(akriv0.ConfigurationResource).Namespace(tenant)
	stored, err := client.Create(a.Context(), configuration, metav1.CreateOptions{})
	require.NoError(a, err)
	a.Cleanup(a.remove)
	return stored
}

// remove deletes the stored Configuration, if there is one.
func (a authors) remove() {
	client := a.admin.Resource(akriv0.ConfigurationResource).Namespace(tenant)
	_, err := client.Patch(context.Background(), "authors", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err == nil {
		err = client.Delete(context.Background(), "authors", metav1.DeleteOptions{})
	}
	if !apierrors.IsNotFound(err) {
		require.NoError(a, err)
	}
}

const brokerOfTenant = `{discoveryHandler: {name: debugEcho, discoveryDetails: a, discoveryProperties: [
  {name: a, value: x},
  {name: b, valueFrom: {secretKeyRef: {name: object-0.x, namespace: other, key: k}}},
  {name: c, valueFrom: {configMapKeyRef: {name: object-1.x, key: k}}}]},
  brokerSpec: {brokerPodSpec: {
    volumes: [{name: v, secret: {secretName: object-2.x}}, {name: w, configMap: {name: object-2.x}},
      {name: p, projected: {sources: [{secret: {name: object-3.x}}, {configMap: {name: object-3.x}}]}}],
    initContainers: [{name: i, envFrom: [{secretRef: {name: object-4.x}}, {configMapRef: {name: object-4.x}}]}],
    containers: [{name: a, env: [{name: Z, value: z},
      {name: A, valueFrom: {secretKeyRef: {name: object-5.x, key: k}}}, {name: B, valueFrom: {configMapKeyRef: {name: object-5.x, key: k}}},
      {name: C, valueFrom: {secretKeyRef: {name: object-5.x, key: other}}}]}]}},
  instanceServiceSpec: {}, configurationServiceSpec: {}}`

var rightsOfTenant = []string{
	"use discoveryhandlers tenant debugEcho", "create jobs tenant ", "create pods tenant ", "create services tenant ",
	"get secrets other object-0.x", "get configmaps tenant object-1.x",
	"get secrets tenant object-4.x", "get configmaps tenant object-4.x", "get secrets tenant object-5.x", "get configmaps tenant object-5.x",
	"get secrets tenant object-2.x", "get configmaps tenant object-2.x", "get secrets tenant object-3.x", "get configmaps tenant object-3.x",
}

// asArguments returns a right as arguments of `kubectl auth can-i`, as the policy prints it.
func asArguments(right string) string {
	parts := strings.Split(right, " ")
	resource := map[string]string{"discoveryhandlers": "discoveryhandlers.akri.sh", "jobs": "jobs.batch"}[parts[1]]
	if resource == "" {
		resource = parts[1]
	}
	if parts[3] != "" {
		resource += "/" + parts[3]
	}
	return parts[0] + " " + resource + " --namespace " + parts[2]
}

func without(rights []string, right string) []string {
	return slices.DeleteFunc(slices.Clone(rights), func(r string) bool { return r == right })
}

// TestRightsOfAuthors takes one right away at a time.
func TestRightsOfAuthors(t *testing.T) {
	a := newAuthors(t)
	needed := without(rightsOfTenant, "create jobs tenant ")
	require.NoError(t, a.create(brokerOfTenant, needed...))
	for _, right := range needed {
		err := a.create(brokerOfTenant, without(needed, right)...)
		require.True(t, apierrors.IsForbidden(err), "%s: %v", right, err)
		require.ErrorContains(t, err, `user "ann" cannot `+asArguments(right)+"; Akri would do this")
	}

	job := `{discoveryHandler: {name: onvif}, brokerSpec: {brokerJobSpec: {template: {spec: {containers: [{name: a, envFrom: [{secretRef: {name: object-0.x}}]}]}}}}}`
	require.EqualError(t, a.create(job), `configurations.akri.sh "authors" is forbidden: ValidatingAdmissionPolicy 'akri-authors' with binding 'akri-authors' denied request: `+
		`user "ann" cannot use discoveryhandlers.akri.sh/onvif --namespace tenant; Akri would do this for the author of the Configuration, `+
		`who needs these rights for the change (arguments of kubectl auth can-i): use discoveryhandlers.akri.sh/onvif --namespace tenant, `+
		`create jobs.batch --namespace tenant, get secrets/object-0.x --namespace tenant`)
}

// A name that Akri completes with the name of a device or of the Configuration can become the name
// of any object, so its author needs the right to get all of them.
func TestRightsOfCompletedNames(t *testing.T) {
	a := newAuthors(t)
	for _, name := range []string{"$(AKRI_INSTANCE)", "$(AKRI_CONFIGURATION)", "object-$(AKRI_INSTANCE)", "$(AKRI_CONFIGURATION)-0.x"} {
		for _, from := range []string{"object-2.x", "object-3.x", "object-4.x", "object-5.x"} {
			spec := strings.ReplaceAll(brokerOfTenant, "name: "+from, `name: "`+name+`"`)
			spec = strings.ReplaceAll(spec, "secretName: "+from, `secretName: "`+name+`"`)
			require.NotEqual(t, brokerOfTenant, spec)

			for _, resource := range []string{"secrets", "configmaps"} {
				all := "get " + resource + " tenant "
				named := append(slices.Clone(rightsOfTenant), "get secrets tenant ", "get configmaps tenant ")
				require.NoError(t, a.create(spec, named...), name)
				require.ErrorContains(t, a.create(spec, without(named, all)...), `user "ann" cannot get `+resource+" --namespace tenant; ", name)
			}
		}
	}
}

// TestRightsOfEdits edits one part of a Configuration without any right, also while a finalizer
// keeps what has been deleted.
func TestRightsOfEdits(t *testing.T) {
	a := newAuthors(t)
	configuration := configurationOf(t, brokerOfTenant)
	configuration.SetFinalizers([]string{"example.com/keep"})
	stored := a.store(configuration)
	edits := map[string]struct{ from, to, needs string }{
		"capacity":            {"instanceServiceSpec", "capacity: 5, instanceServiceSpec", ""},
		"no Service":          {", configurationServiceSpec: {}", "", ""},
		"null":                {", configurationServiceSpec: {}", ", configurationServiceSpec: null", ""},
		"broker":              {"secretName: object-2.x", "secretName: object-9.x", "create pods"},
		"broker's properties": {"instanceServiceSpec", "brokerProperties: {LD_PRELOAD: x}, instanceServiceSpec", "create pods"},
		"details":             {"discoveryDetails: a", "discoveryDetails: b", "use discoveryhandlers.akri.sh/debugEcho"},
		"Secret of a handler": {"name: object-0.x", "name: object-1.x", "use discoveryhandlers.akri.sh/debugEcho"},
		"Service":             {"instanceServiceSpec: {}", "instanceServiceSpec: {type: LoadBalancer}", "create services"},
		"Service's metadata":  {"instanceServiceSpec", "instanceServiceMetadata: {annotations: {a: b}}, instanceServiceSpec", "create services"},
	}
	try := func(t *testing.T) {
		for name, c := range edits {
			edited := strings.Replace(brokerOfTenant, c.from, c.to, 1)
			require.NotEqual(t, brokerOfTenant, edited, name)
			change := configurationOf(t, edited)
			change.SetFinalizers(stored.GetFinalizers())
			change.SetResourceVersion(stored.GetResourceVersion())
			_, err := a.as(nil).Update(t.Context(), change, metav1.UpdateOptions{DryRun: dryRun})
			if c.needs == "" {
				require.NoError(t, err, name)
			} else {
				require.ErrorContains(t, err, `user "ann" cannot `+c.needs, name)
			}
		}
	}
	t.Run("kept", try)

	require.NoError(t, a.as(nil).Delete(t.Context(), "authors", metav1.DeleteOptions{}))
	var err error
	stored, err = a.as(nil).Get(t.Context(), "authors", metav1.GetOptions{})
	require.NoError(t, err)
	require.NotNil(t, stored.GetDeletionTimestamp())
	t.Run("being deleted", try)
	_, err = a.as(nil).Patch(t.Context(), "authors", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{DryRun: dryRun})
	require.NoError(t, err, "the removal of a finalizer needs no right")
}

// withObjects returns a spec that needs every kind of right, and the rights. It names each of n
// objects several times.
func withObjects(n, times int) (spec string, rights []string) {
	var env strings.Builder
	rights = without(rightsOfTenant[:4], "create pods tenant ")
	for i := range n * times {
		resource, kind := "secrets", "secretKeyRef"
		if i%n >= len(objectNames) {
			resource, kind = "configmaps", "configMapKeyRef"
		}
		name := objectNames[i%n%len(objectNames)]
		fmt.Fprintf(&env, "{name: A%d, valueFrom: {%s: {name: %s, key: k}}}, ", i, kind, name)
		if i < n {
			rights = append(rights, "get "+resource+" tenant "+name)
		}
	}
	return `{discoveryHandler: {name: debugEcho}, instanceServiceSpec: {}, configurationServiceSpec: {}, brokerSpec: {
		brokerJobSpec: {template: {spec: {containers: [{name: a, env: [` + env.String() + `]}]}}}}}`, rights
}

// TestNumberOfObjects shows that the API server's limits of cost allow the documented number of
// objects, however often a Configuration names them.
func TestNumberOfObjects(t *testing.T) {
	a := newAuthors(t)
	for _, times := range []int{1, 18} {
		spec, rights := withObjects(16, times)
		require.NoError(t, a.create(spec, rights...), "%d times", times)
		last := rights[len(rights)-1]
		require.ErrorContains(t, a.create(spec, without(rights, last)...), `user "ann" cannot `+asArguments(last)+"; ")
		require.ErrorContains(t, a.create(spec), `user "ann" cannot use discoveryhandlers.akri.sh/debugEcho --namespace tenant; `)
	}
	for _, n := range []int{17, 36} {
		spec, rights := withObjects(n, 1)
		require.ErrorContains(t, a.create(spec, rights...), "a change of a Configuration can name at most 16 Secrets and ConfigMaps, because")
	}
}

// manyReferences are the parts of a broker that can name Secrets and ConfigMaps. Each returns the
// fields of a Pod with n items that count, and two names in each that can have them.
var manyReferences = map[string]func(n int, name func() string) string{
	"variables": func(n int, name func() string) string {
		values := repeat(4000, func() string { return "{name: A, value: a}" })
		return "containers: [{name: a, env: [" + values + ", " + repeat(n-1, func() string {
			return fmt.Sprintf("{name: A, valueFrom: {secretKeyRef: {name: %s, key: k}, configMapKeyRef: {name: %s, key: k}}}", name(), name())
		}) + "]}]"
	},
	"sources of variables": func(n int, name func() string) string {
		return "containers: [{name: a, envFrom: [" + repeat(n-1, func() string {
			return fmt.Sprintf("{secretRef: {name: %s}, configMapRef: {name: %s}}", name(), name())
		}) + "]}]"
	},
	"containers": func(n int, name func() string) string {
		return "initContainers: [" + repeat(n/2, func() string {
			return fmt.Sprintf("{envFrom: [{secretRef: {name: %s}, configMapRef: {name: %s}}]}", name(), name())
		}) + "]"
	},
	"volumes": func(n int, name func() string) string {
		return "volumes: [" + repeat(n, func() string {
			return fmt.Sprintf("{secret: {secretName: %s}, configMap: {name: %s}}", name(), name())
		}) + "]"
	},
	"sources of volumes": func(n int, name func() string) string {
		return "volumes: [" + repeat(n/2, func() string {
			return fmt.Sprintf("{projected: {sources: [{secret: {name: %s}, configMap: {name: %s}}]}}", name(), name())
		}) + "]"
	},
}

// repeat returns n items of a list.
func repeat(n int, item func() string) string {
	items := make([]string, n)
	for i := range items {
		items[i] = item()
	}
	return strings.Join(items, ", ")
}

// TestLargestConfigurations shows that the API server's limits of cost allow the largest
// Configurations that the policy accepts, with the longest names, for authors with and without
// the rights, and that larger ones are refused with the reason.
func TestLargestConfigurations(t *testing.T) {
	a := newAuthors(t)
	rights := []string{
		"use discoveryhandlers " + longNamespace + " " + longHandler, "create jobs " + longNamespace + " ", "create services " + longNamespace + " ",
		"get secrets " + longNamespace + " ", "get configmaps " + longNamespace + " ",
	}

	// 14 names are named once and first, so that the expressions compare the others with each of
	// them. The two others are a Secret and a ConfigMap of the broker.
	names := make([]string, 15)
	for i := range names {
		names[i] = strings.Repeat("x", 251) + fmt.Sprintf("%02d", i)
	}
	last := func() string { return names[14] }
	properties := func(n int) string {
		i := -1
		return repeat(n, func() string {
			i++
			return fmt.Sprintf("{name: A, valueFrom: {secretKeyRef: {name: %s, namespace: %s, key: k}}}", names[min(i, 13)], longNamespace)
		})
	}
	spec := func(pod string) string {
		return fmt.Sprintf(`{discoveryHandler: {name: %s, discoveryProperties: [%s]}, instanceServiceSpec: {}, configurationServiceSpec: {},
			brokerSpec: {brokerJobSpec: {template: {spec: {%s}}}}}`, longHandler, properties(256), pod)
	}

	for part, fields := range manyReferences {
		t.Run(part, func(t *testing.T) {
			a := authors{t, a.admin}
			largest := spec(fields(300, last))
			require.NoError(t, a.createIn(longNamespace, largest, rights...))
			for _, right := range rights {
				require.ErrorContains(t, a.createIn(longNamespace, largest, without(rights, right)...), `user "ann" cannot `+strings.TrimSuffix(asArguments(right), " --namespace "+longNamespace))
			}
			require.ErrorContains(t, a.createIn(longNamespace, largest), `user "ann" cannot `+asArguments(rights[0])+"; ")

			for _, n := range []int{302, 5000} {
				larger := spec(fields(n, func() string { return "x" }))
				require.ErrorContains(t, a.createIn(longNamespace, larger, rights...), "a change of a Configuration can have at most 300 containers, volumes, ", n)
			}
		})
	}
}

// TestRandomAuthors compares the policy with rightsOfChange for random changes and rights, with
// values of wrong types.
func TestRandomAuthors(t *testing.T) {
	a := newAuthors(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := generator{rand.New(rand.NewPCG(seed, 0))}
	denied, tooMany := 0, 0
	for range 60 {
		old := a.store(configurationWith(r.storable()))
		content := old.Object["spec"].(map[string]any)
		for range 5 {
			spec := r.edit(content)
			change := configurationWith(spec)
			change.SetResourceVersion(old.GetResourceVersion())
			needed, objects := rightsOfChange(tenant, content, spec)
			rights := r.most(needed)
			missing := missingRights(needed, rights)
			_, err := a.as(rights).Update(t.Context(), change, metav1.UpdateOptions{DryRun: dryRun})
			switch {
			case objects > 16:
				tooMany++
				require.ErrorContains(t, err, "can name at most 16", "seed %d: %v", seed, spec)
			case len(missing) == 0:
				require.NoError(t, err, "seed %d: %v\n->\n%v", seed, content, spec)
			default:
				denied++
				require.Error(t, err, "seed %d: %v\n->\n%v", seed, content, spec)
				require.True(t, slices.ContainsFunc(missing, func(right string) bool {
					return strings.Contains(err.Error(), `user "ann" cannot `+asArguments(right)+"; ")
				}), "seed %d: %v: %v", seed, missing, err)
			}
		}
		a.remove()
	}
	require.Positive(t, denied, "seed %d", seed)
	require.Positive(t, tooMany, "seed %d", seed)
}

// missingRights returns the needed rights that an author does not have. The right to get all
// objects contains that to get one.
func missingRights(needed, rights []string) []string {
	return slices.DeleteFunc(slices.Clone(needed), func(right string) bool {
		all := right[:strings.LastIndex(right, " ")+1]
		return slices.Contains(rights, right) || slices.Contains(rights, all)
	})
}

// generator makes random specs.
type generator struct{ *rand.Rand }

// completedNames are names that broker-controller completes, and names that no object can have.
var completedNames = []string{
	"$(AKRI_INSTANCE)", "$(AKRI_CONFIGURATION)", "object-$(AKRI_INSTANCE)", "$(AKRI_CONFIGURATION)-0.x",
	"$(INSTANCE)", "Object-0", "object 0", "object/0", "", strings.Repeat("x", 254), strings.Repeat("x", 254) + "$(AKRI_INSTANCE)",
}

func (r generator) name() string { return objectNames[r.IntN(len(objectNames))] }

// completedName returns a name of an object, or one of completedNames.
func (r generator) completedName() string {
	if r.IntN(6) == 0 {
		return completedNames[r.IntN(len(completedNames))]
	}
	return r.name()
}

func (r generator) maybe(object map[string]any, field string, value func() any) {
	if r.IntN(3) > 0 {
		object[field] = value()
	}
}

func (r generator) list(limit int, item func() map[string]any) func() any {
	return func() any {
		list := []any{}
		for range r.IntN(limit + 1) {
			list = append(list, r.damage(item()))
		}
		return list
	}
}

// damage returns a value of a wrong type, sometimes.
func (r generator) damage(value any) any {
	wrong := []any{nil, "a text", int64(1), 1.5, true, []any{"a text", nil}, map[string]any{"name": []any{}}, []any{}}
	if r.IntN(40) == 0 {
		return wrong[r.IntN(len(wrong))]
	}
	return value
}

// reference returns an object that refers to one of the kinds of objects.
func (r generator) reference(secret, nameOfSecret, configMap string) map[string]any {
	object := map[string]any{}
	if r.IntN(2) == 0 {
		object[secret] = r.damage(map[string]any{nameOfSecret: r.damage(r.completedName()), "key": "k"})
	} else {
		object[configMap] = r.damage(map[string]any{"name": r.damage(r.completedName()), "key": "k"})
	}
	return object
}

func (r generator) container() map[string]any {
	container := map[string]any{"name": "a"}
	r.maybe(container, "env", r.list(12, func() map[string]any {
		return map[string]any{"name": "A", "valueFrom": r.damage(r.reference("secretKeyRef", "name", "configMapKeyRef"))}
	}))
	r.maybe(container, "envFrom", r.list(3, func() map[string]any { return r.reference("secretRef", "name", "configMapRef") }))
	return container
}

func (r generator) volume() map[string]any {
	if r.IntN(2) == 0 {
		return r.reference("secret", "secretName", "configMap")
	}
	projected := map[string]any{}
	r.maybe(projected, "sources", r.list(3, func() map[string]any { return r.reference("secret", "name", "configMap") }))
	return map[string]any{"projected": r.damage(projected)}
}

func (r generator) pod() map[string]any {
	pod := map[string]any{}
	r.maybe(pod, "initContainers", r.list(2, r.container))
	r.maybe(pod, "containers", r.list(3, r.container))
	r.maybe(pod, "volumes", r.list(3, r.volume))
	return pod
}

// crowded returns a Pod that names all Secrets: more objects than a change may name.
func (generator) crowded() map[string]any {
	env := []any{}
	for _, name := range objectNames {
		env = append(env, map[string]any{"name": "A", "valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": name, "key": "k"}}})
	}
	return map[string]any{"containers": []any{map[string]any{"name": "a", "env": env}}}
}

// property has the types of the schema, which the API server checks before the policy.
func (r generator) property() any {
	reference := map[string]any{"name": r.name(), "key": "k"}
	if namespace := []string{"", tenant, other, "-"}[r.IntN(4)]; namespace != "-" {
		reference["namespace"] = namespace
	}
	kind := []string{"secretKeyRef", "configMapKeyRef"}[r.IntN(2)]
	return map[string]any{"name": "A", "valueFrom": map[string]any{kind: reference}}
}

// part returns a part of a spec.
func (r generator) part(name string) any {
	switch name {
	case "discoveryHandler":
		handler := map[string]any{"name": []string{"debugEcho", "onvif"}[r.IntN(2)], "discoveryDetails": fmt.Sprint(r.IntN(3))}
		properties := []any{}
		for range r.IntN(4) {
			properties = append(properties, r.property())
		}
		r.maybe(handler, "discoveryProperties", func() any { return properties })
		return handler
	case "brokerSpec":
		if r.IntN(3) == 0 {
			job := map[string]any{"template": r.damage(map[string]any{"spec": r.damage(r.pod())})}
			return map[string]any{"brokerJobSpec": job}
		}
		if r.IntN(6) == 0 {
			return map[string]any{"brokerPodSpec": r.crowded()} // random references are seldom too many
		}
		return map[string]any{"brokerPodSpec": r.pod()}
	case "brokerProperties":
		return map[string]any{"A": fmt.Sprint(r.IntN(2))}
	case "capacity":
		return int64(1 + r.IntN(3))
	}
	if strings.HasSuffix(name, "Metadata") {
		return map[string]any{"annotations": map[string]any{"a": fmt.Sprint(r.IntN(2))}}
	}
	return map[string]any{"type": []string{"ClusterIP", "NodePort"}[r.IntN(2)]}
}

var partsOfSpec = []string{
	"brokerSpec", "brokerProperties", "capacity", "instanceServiceSpec", "configurationServiceSpec",
	"instanceServiceMetadata", "configurationServiceMetadata",
}

func (r generator) spec() map[string]any {
	spec := map[string]any{"discoveryHandler": r.part("discoveryHandler")}
	for _, part := range partsOfSpec {
		r.maybe(spec, part, func() any { return r.part(part) })
	}
	return spec
}

// storable returns a spec with few enough objects.
func (r generator) storable() map[string]any {
	for {
		spec := r.spec()
		if _, objects := rightsOfChange(tenant, nil, spec); objects <= 16 {
			return spec
		}
	}
}

// edit returns the spec with some changed parts.
func (r generator) edit(spec map[string]any) map[string]any {
	edited := maps.Clone(spec)
	for _, part := range append(partsOfSpec, "discoveryHandler") {
		switch r.IntN(4) {
		case 0:
			edited[part] = r.part(part)
		case 1:
			if part != "discoveryHandler" {
				delete(edited, part)
			}
		}
	}
	return edited
}

// most returns all rights, or all but one.
func (r generator) most(rights []string) []string {
	if len(rights) == 0 || r.IntN(2) == 0 {
		return rights
	}
	return without(rights, rights[r.IntN(len(rights))])
}

// notVisible are fields of a Pod that refer to Secrets whose values do not become visible in its
// containers: the kubelet uses them to pull images and to mount volumes. The API server refuses
// ephemeral containers when a Pod is created.
var notVisible = []string{
	"imagePullSecrets", "ephemeralContainers", "azureFile", "cephfs", "cinder", "csi", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos",
}

// TestPolicyIsComplete has a Pod for each field of the Pods of Kubernetes that refers to a Secret
// or a ConfigMap.
func TestPolicyIsComplete(t *testing.T) {
	a := newAuthors(t)
	rights := rightsOfTenant[:4]
	checked := 0
	for path, pod := range podsWithReferences(reflect.TypeFor[corev1.PodSpec](), nil) {
		spec := map[string]any{"discoveryHandler": map[string]any{"name": "debugEcho"}, "brokerSpec": map[string]any{"brokerPodSpec": pod}}
		_, err := a.as(rights).Create(t.Context(), configurationWith(spec), metav1.CreateOptions{DryRun: dryRun})
		if slices.ContainsFunc(strings.Split(path, "."), func(field string) bool { return slices.Contains(notVisible, field) }) {
			require.NoError(t, err, path)
			continue
		}
		checked++
		require.ErrorContains(t, err, "/object-0.x --namespace tenant; Akri", path)
	}
	require.Equal(t, 12, checked, "fields that the policy checks")
}

// podsWithReferences returns an object for each path to the name of a Secret or of a ConfigMap in a
// type.
func podsWithReferences(of reflect.Type, outer []reflect.Type) map[string]any {
	switch of.Kind() {
	case reflect.Pointer:
		return podsWithReferences(of.Elem(), outer)
	case reflect.Slice:
		objects := map[string]any{}
		for path, object := range podsWithReferences(of.Elem(), outer) {
			objects[path] = []any{object}
		}
		return objects
	case reflect.Struct:
	default:
		return nil
	}
	objects := map[string]any{}
	if slices.Contains(outer, of) {
		return nil
	}
	refers := strings.Contains(of.Name(), "Secret") || strings.Contains(of.Name(), "ConfigMap") || of.Name() == "LocalObjectReference"
	for _, field := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "":
		case name == "secretName" || name == "name" && refers:
			objects[name] = map[string]any{name: objectNames[0]}
		default:
			for path, object := range podsWithReferences(field.Type, append(outer, of)) {
				objects[name+"."+path] = map[string]any{name: object}
			}
		}
	}
	return objects
}

// Only policies check the rights of authors. So the installation on a cluster without them fails,
// unless a value accepts it.
func TestAuthorsNeedPolicies(t *testing.T) {
	withoutPolicies := []string{"--api-versions", "v1/Pod"}
	_, err := render(t, withoutPolicies...)
	require.ErrorContains(t, err, "the API server does not serve ValidatingAdmissionPolicies (admissionregistration.k8s.io/v1)")
	require.ErrorContains(t, err, "set broker-controller.authors.enabled=false")

	rendered, err := render(t, append(withoutPolicies, set("broker-controller.authors.enabled=false")...)...)
	require.NoError(t, err)
	require.NotContains(t, rendered, "name: akri-authors")

	rendered, err = render(t, append(withoutPolicies, "--api-versions", "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy")...)
	require.NoError(t, err)
	require.Contains(t, rendered, "name: akri-authors")
}
