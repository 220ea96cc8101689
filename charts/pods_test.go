package charts_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"akri.sh/libs/kube/kubetest"
)

const (
	podsPolicy       = "akri-dra-controller-pods"
	returnAnnotation = "akri.sh/plugin-returned"
)

// podWithClaim has a value in each field of its metadata that a client can set, and in the fields
// of the spec that can change.
const podWithClaim = `
apiVersion: v1
kind: Pod
metadata:
  name: waiting
  namespace: edge
  labels: {app: camera, other: label}
  annotations: {note: a, akri.sh/other: b}
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: 11111111-2222-3333-4444-555555555555}]
  finalizers: [example.com/keep]
spec:
  nodeName: node-a
  activeDeadlineSeconds: 1000
  resourceClaims: [{name: camera, resourceClaimName: camera}]
  tolerations: [{key: a, operator: Exists, effect: NoExecute, tolerationSeconds: 10}]
  initContainers: [{name: init, image: "cluster.invalid/pause:1"}]
  containers:
    - name: main
      image: cluster.invalid/pause:1
      env: [{name: A, value: b}]
      resources: {claims: [{name: camera}], requests: {cpu: 10m, memory: 8Mi}}
`

// controllerOfPods returns the access of dra-controller, with its real rights and the value
// retryPreparations, in the namespace edge.
func controllerOfPods(t *testing.T) *rest.Config {
	t.Helper()
	admin, err := kubernetes.NewForConfig(server.Config())
	require.NoError(t, err)
	_, err = admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "edge"}}, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		require.NoError(t, err)
	}
	applyTemplates(t, set("global.resources=dra", "dra-controller.retryPreparations=true"), "policy", "rbac")
	config := server.Config()
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:edge:akri-dra-controller",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:edge", "system:authenticated"},
	}
	return config
}

// createPod creates the Pod as an administrator until the test ends.
func createPod(t *testing.T, pods dynamic.ResourceInterface, manifest string) *unstructured.Unstructured {
	t.Helper()
	pod := &unstructured.Unstructured{}
	require.NoError(t, yaml.Unmarshal([]byte(manifest), &pod.Object))
	created, err := pods.Create(t.Context(), pod, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx := context.Background()
		_, err := pods.Patch(ctx, created.GetName(), types.MergePatchType, []byte(`{"metadata": {"finalizers": null}}`), metav1.PatchOptions{})
		require.NoError(t, err)
		require.NoError(t, pods.Delete(ctx, created.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	})
	return created
}

func podsIn(t *testing.T, config *rest.Config) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	return client.Resource(corev1.SchemeGroupVersion.WithResource("pods")).Namespace("edge")
}

// withReturn returns a merge patch of the annotation.
func withReturn(value string) []byte {
	return fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %s}}}`, returnAnnotation, value)
}

// awaitPodPolicy waits until the policy is in force. It is refused a change that its rights allow.
func awaitPodPolicy(t *testing.T, pods dynamic.ResourceInterface, name string) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := pods.Patch(t.Context(), name, types.MergePatchType, []byte(`{"metadata": {"labels": {"early": "x"}}}`), metav1.PatchOptions{DryRun: dryRun})
		require.ErrorContains(c, err, "ValidatingAdmissionPolicy '"+podsPolicy+"'")
	}, time.Minute, 100*time.Millisecond, "the policy is in force")
}

// TestChangesOfPods attacks with the account of dra-controller. Every change of a Pod that an
// administrator could make is refused, but for that of one annotation.
func TestChangesOfPods(t *testing.T) {
	const attempts, seed = 600, 1
	random := rand.New(rand.NewPCG(seed, seed))
	config := controllerOfPods(t)
	admin, controller := podsIn(t, server.Config()), podsIn(t, config)
	createPod(t, admin, podWithClaim)
	awaitPodPolicy(t, controller, "waiting")

	for _, value := range []string{`"2026-01-02T03:04:05Z"`, `"2026-01-02T03:04:06Z"`} {
		_, err := controller.Patch(t.Context(), "waiting", types.MergePatchType, withReturn(value), metav1.PatchOptions{})
		require.NoError(t, err)
	}
	current, err := admin.Get(t.Context(), "waiting", metav1.GetOptions{})
	require.NoError(t, err)

	changed := map[string]int{} // the attempts that the API server accepts of an administrator, by what changes
	for range attempts {
		patch, kind := randomPatch(t, random, current)
		options := metav1.PatchOptions{DryRun: dryRun}
		possible, err := admin.Patch(t.Context(), "waiting", kind, patch, options)
		if err != nil {
			continue // no Pod can change so
		}
		field := changedField(current, possible)
		_, err = controller.Patch(t.Context(), "waiting", kind, patch, options)
		if field == "" {
			require.NoError(t, err, "%s %s", kind, patch)
		} else {
			require.ErrorContains(t, err, "ValidatingAdmissionPolicy '"+podsPolicy+"'", "%s of %s: %s", kind, field, patch)
		}
		changed[field]++
	}
	t.Logf("changes of these fields, or of none: %v", changed)
	require.Subset(t, slices.Collect(maps.Keys(changed)), []string{
		"", "metadata.labels", "metadata.annotations", "metadata.ownerReferences", "metadata.finalizers", "metadata.generateName", "spec", "value",
	}, "the attempts are too weak")
}

// changedField returns the part that differs between the Pods, or nothing if only the annotation
// does, which dra-controller may set to a time.
func changedField(before, after *unstructured.Unstructured) string {
	before, after = before.DeepCopy(), after.DeepCopy()
	for _, pod := range []*unstructured.Unstructured{before, after} {
		pod.SetManagedFields(nil)
		pod.SetResourceVersion("")
	}
	value := after.GetAnnotations()[returnAnnotation]
	_, invalid := time.Parse(time.RFC3339, value)
	for _, pod := range []*unstructured.Unstructured{before, after} {
		unstructured.RemoveNestedField(pod.Object, "metadata", "annotations", returnAnnotation)
	}
	for _, field := range []string{"labels", "annotations", "ownerReferences", "finalizers", "generateName"} {
		old, _, _ := unstructured.NestedFieldNoCopy(before.Object, "metadata", field)
		current, _, _ := unstructured.NestedFieldNoCopy(after.Object, "metadata", field)
		if !reflect.DeepEqual(old, current) && (!isEmpty(old) || !isEmpty(current)) {
			return "metadata." + field
		}
		unstructured.RemoveNestedField(before.Object, "metadata", field)
		unstructured.RemoveNestedField(after.Object, "metadata", field)
	}
	switch {
	case !reflect.DeepEqual(before.Object["spec"], after.Object["spec"]):
		return "spec"
	case !reflect.DeepEqual(before.Object, after.Object):
		return "another field"
	case invalid != nil || !strings.HasSuffix(value, "Z"):
		return "value"
	default:
		return ""
	}
}

func isEmpty(value any) bool {
	return value == nil || reflect.ValueOf(value).Len() == 0
}

// randomPatch returns a patch of one to three random fields of the Pod, in one of the forms of
// patches. Half of them also set the annotation, as dra-controller does.
func randomPatch(t *testing.T, random *rand.Rand, pod *unstructured.Unstructured) ([]byte, types.PatchType) {
	t.Helper()
	edited := pod.DeepCopy()
	edited.SetManagedFields(nil)
	edited.SetResourceVersion("")
	if random.IntN(2) == 0 {
		annotations := edited.GetAnnotations()
		annotations[returnAnnotation] = []string{"2026-02-03T04:05:06Z", "now", "", "2026-02-03T04:05:06Z\nother"}[random.IntN(4)]
		edited.SetAnnotations(annotations)
	}
	for range 1 + random.IntN(3) {
		editPod(random, edited)
	}

	switch random.IntN(4) {
	case 0:
		edited.SetUID("")
		edited.SetCreationTimestamp(metav1.Time{})
		return marshal(t, map[string]any{"metadata": edited.Object["metadata"], "spec": edited.Object["spec"]}), types.MergePatchType
	case 1:
		return marshal(t, map[string]any{"metadata": edited.Object["metadata"]}), types.StrategicMergePatchType
	case 2:
		return marshal(t, []map[string]any{
			{"op": "add", "path": "/metadata", "value": edited.Object["metadata"]}, {"op": "add", "path": "/spec", "value": edited.Object["spec"]},
		}), types.JSONPatchType
	default:
		return marshal(t, map[string]any{"spec": edited.Object["spec"]}), types.StrategicMergePatchType
	}
}

// editPod makes one change. Half of the changes are those that the API server accepts of a
// running Pod, the others are of any field.
func editPod(random *rand.Rand, pod *unstructured.Unstructured) {
	set := func(value any, path ...string) { _ = unstructured.SetNestedField(pod.Object, value, path...) }
	remove := func(path ...string) { unstructured.RemoveNestedField(pod.Object, path...) }
	text := fmt.Sprint("x", random.IntN(5))
	containers := func(field string, edit func(container map[string]any)) {
		list, _, _ := unstructured.NestedSlice(pod.Object, "spec", field)
		for _, container := range list {
			edit(container.(map[string]any))
		}
		set(list, "spec", field)
	}
	edits := []func(){
		func() { set(text, "metadata", "labels", []string{"app", "new"}[random.IntN(2)]) },
		func() { remove("metadata", "labels", "other") },
		func() { remove("metadata", "labels") },
		func() {
			set(text, "metadata", "annotations", []string{"note", "akri.sh/plugin-returned2", "new"}[random.IntN(3)])
		},
		func() {
			remove("metadata", "annotations", []string{"note", "akri.sh/other", returnAnnotation}[random.IntN(3)])
		},
		func() { remove("metadata", "annotations") },
		func() { remove("metadata", "ownerReferences") },
		func() {
			pod.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: text, UID: types.UID(text)}})
		},
		func() { remove("metadata", "finalizers") },
		func() { pod.SetFinalizers([]string{"example.com/" + text}) },
		func() { pod.SetGenerateName(text) },
		func() { set(int64(1+random.IntN(999)), "spec", "activeDeadlineSeconds") },
		func() { containers("containers", func(c map[string]any) { c["image"] = "cluster.invalid/" + text }) },
		func() {
			containers("initContainers", func(c map[string]any) { c["image"] = "cluster.invalid/" + text })
		},
		func() {
			tolerations, _, _ := unstructured.NestedSlice(pod.Object, "spec", "tolerations")
			set(append(tolerations, map[string]any{"key": text, "operator": "Exists", "effect": "NoSchedule"}), "spec", "tolerations")
		},
		func() { set(int64(random.IntN(3)), "spec", "terminationGracePeriodSeconds") },
	}
	if random.IntN(2) == 0 {
		edits[random.IntN(len(edits))]()
		return
	}
	leaves := leavesOf(nil, map[string]any{"metadata": pod.Object["metadata"], "spec": pod.Object["spec"]})
	leaf := leaves[random.IntN(len(leaves))]
	if random.IntN(2) == 0 {
		remove(leaf...)
	} else {
		set(text, leaf...)
	}
}

// leavesOf returns the paths of the values in nested maps, in order.
func leavesOf(path []string, value map[string]any) (leaves [][]string) {
	for _, key := range slices.Sorted(maps.Keys(value)) {
		below := append(slices.Clone(path), key)
		if nested, isMap := value[key].(map[string]any); isMap {
			leaves = append(leaves, leavesOf(below, nested)...)
		} else {
			leaves = append(leaves, below)
		}
	}
	return leaves
}

func marshal(t *testing.T, value any) []byte {
	t.Helper()
	content, err := json.Marshal(value)
	require.NoError(t, err)
	return content
}

// TestOtherRightsOnPods uses all verbs of Pods and of all their subresources that the API server
// has. dra-controller has list, watch and patch of Pods, and patch of Pods with claims only.
func TestOtherRightsOnPods(t *testing.T) {
	config := controllerOfPods(t)
	admin, controller := podsIn(t, server.Config()), podsIn(t, config)
	createPod(t, admin, podWithClaim)
	without := strings.NewReplacer(
		"name: waiting", "name: without-claim", "resourceClaims: [{name: camera, resourceClaimName: camera}]", "", "claims: [{name: camera}], ", "",
	).Replace(podWithClaim)
	createPod(t, admin, without)
	awaitPodPolicy(t, controller, "waiting")

	_, err := controller.Patch(t.Context(), "without-claim", types.MergePatchType, withReturn(`"2026-01-02T03:04:05Z"`), metav1.PatchOptions{})
	require.ErrorContains(t, err, "dra-controller changes only Pods with ResourceClaims")
	_, err = controller.Patch(t.Context(), "new", types.ApplyPatchType, []byte(strings.Replace(podWithClaim, "name: waiting", "name: new", 1)),
		metav1.PatchOptions{FieldManager: "test"})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	_, err = controller.List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)

	clientset, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	all, err := clientset.Discovery().ServerResourcesForGroupVersion("v1")
	require.NoError(t, err)
	tried := 0
	for _, resource := range all.APIResources {
		name, subresource, _ := strings.Cut(resource.Name, "/")
		if name != "pods" && name != "bindings" {
			continue
		}
		for _, verb := range []string{"GET", "POST", "PUT", "PATCH", "DELETE"} {
			if resource.Name == "pods" && verb == "PATCH" {
				continue
			}
			request := clientset.CoreV1().RESTClient().Verb(verb).Namespace("edge").Resource(name)
			if subresource != "" || verb == "GET" || verb == "PUT" || verb == "DELETE" {
				request = request.Name("waiting")
			}
			request = request.SubResource(strings.Fields(subresource)...).SetHeader("Content-Type", "application/json").Body([]byte("{}"))
			err := request.Do(t.Context()).Error()
			require.True(t, apierrors.IsForbidden(err), "%s %s: %v", verb, resource.Name, err)
			tried++
		}
	}
	require.Greater(t, tried, 40)
	require.True(t, apierrors.IsForbidden(controller.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})))
}

// TestOrderOfRightAndPolicy checks that the policy does not depend on the value, and that the right
// to change Pods ends before it.
func TestOrderOfRightAndPolicy(t *testing.T) {
	t.Parallel()
	own, err := kubetest.StartWithoutCRDs(t.Context())
	require.NoError(t, err)
	t.Cleanup(own.Stop)
	clientset, err := kubernetes.NewForConfig(own.Config())
	require.NoError(t, err)
	access := []string{"--kubeconfig", kubeconfigOf(t, own), "--namespace", "akri-system"}
	helm := func(arguments ...string) {
		t.Helper()
		_, err := run(t, "helm", append(arguments, access...)...)
		require.NoError(t, err)
	}
	upgrade := func(values ...string) {
		t.Helper()
		helm(slices.Concat([]string{"upgrade", "--install", "akri", "akri", "--create-namespace"}, set(values...))...)
	}
	mayPatchPods := func() bool {
		t.Helper()
		role, err := clientset.RbacV1().ClusterRoles().Get(t.Context(), "akri-dra-controller", metav1.GetOptions{})
		require.NoError(t, err)
		return slices.ContainsFunc(role.Rules, func(rule rbacv1.PolicyRule) bool { return slices.Contains(rule.Resources, "pods") })
	}

	upgrade("global.resources=dra")
	require.False(t, mayPatchPods())
	policy, err := clientset.AdmissionregistrationV1().ValidatingAdmissionPolicies().Get(t.Context(), podsPolicy, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, admissionv1.Fail, *policy.Spec.FailurePolicy)
	for name, end := range map[string]func(){
		"the form changes":   func() { upgrade("global.resources=devicePlugin") },
		"the uninstallation": func() { helm("uninstall", "akri", "--no-hooks") },
	} {
		upgrade("global.resources=dra")
		upgrade("global.resources=dra", "dra-controller.retryPreparations=true")
		require.True(t, mayPatchPods())
		right, policies := endOfPodRight(t, clientset, end)
		require.Less(t, right, slices.Min(policies), name)
	}
}

// endOfPodRight calls end, and returns the revisions in which the right on Pods and the objects of
// its policy were deleted.
func endOfPodRight(t *testing.T, clientset kubernetes.Interface, end func()) (right int64, policies []int64) {
	t.Helper()
	admission := clientset.AdmissionregistrationV1()
	named := func(name string) metav1.ListOptions {
		return metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	}
	role, err := clientset.RbacV1().ClusterRoles().Watch(t.Context(), named("akri-dra-controller"))
	require.NoError(t, err)
	policy, err := admission.ValidatingAdmissionPolicies().Watch(t.Context(), named(podsPolicy))
	require.NoError(t, err)
	binding, err := admission.ValidatingAdmissionPolicyBindings().Watch(t.Context(), named(podsPolicy))
	require.NoError(t, err)
	end()
	return deletionOf(t, role), []int64{deletionOf(t, policy), deletionOf(t, binding)}
}

// deletionOf returns the revision of the deletion of the object.
func deletionOf(t *testing.T, events watch.Interface) int64 {
	t.Helper()
	defer events.Stop()
	timeout := time.After(time.Minute)
	for {
		select {
		case event := <-events.ResultChan():
			if event.Type != watch.Deleted {
				continue
			}
			revision, err := strconv.ParseInt(event.Object.(metav1.Object).GetResourceVersion(), 10, 64)
			require.NoError(t, err)
			return revision
		case <-timeout:
			require.FailNow(t, "the object was not deleted")
		}
	}
}
