package charts_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	resourceclient "k8s.io/client-go/kubernetes/typed/resource/v1"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
)

// resourcesAs returns a client for devices of a user.
func resourcesAs(t *testing.T, user rest.ImpersonationConfig) resourceclient.ResourceV1Interface {
	t.Helper()
	config := server.Config()
	config.Impersonate = user
	clientset, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return clientset.ResourceV1()
}

func slicesAs(t *testing.T, user rest.ImpersonationConfig) resourceclient.ResourceSliceInterface {
	t.Helper()
	return resourcesAs(t, user).ResourceSlices()
}

// applyPolicies applies the policies of dra-controller, as in the namespace edge, with a value of
// global.resources.
func applyPolicies(t *testing.T, resources string) {
	t.Helper()
	applyTemplates(t, set("global.resources="+resources), "policy")
}

// applyTemplates applies templates of dra-controller with the values, as in the namespace edge.
func applyTemplates(t *testing.T, values []string, templates ...string) {
	t.Helper()
	arguments := append(values, "--namespace", "edge")
	for _, template := range templates {
		arguments = append(arguments, "--show-only", "charts/dra-controller/templates/"+template+".yaml")
	}
	objects, err := render(t, arguments...)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "objects.yaml")
	require.NoError(t, os.WriteFile(file, []byte(objects), 0o600))
	_, err = run(t, "kubectl", "apply", "-f", file, "--kubeconfig", kubeconfig(t))
	require.NoError(t, err)
}

func sliceOf(driver, name string) *resourcev1.ResourceSlice {
	return &resourcev1.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: resourcev1.ResourceSliceSpec{
			Driver: driver, NodeName: new("node-a"), Pool: resourcev1.ResourcePool{Name: "default/node/node-a", Generation: 1, ResourceSliceCount: 1},
		},
	}
}

// Only dra-controller creates or changes slices of Akri, and no kubelet deletes them. Slices of
// other drivers are not concerned.
func TestResourceSlicesOfOthers(t *testing.T) {
	const rights = "all-resourceslices"
	admin, err := kubernetes.NewForConfig(server.Config())
	require.NoError(t, err)
	_, err = admin.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: rights},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"resource.k8s.io"}, Resources: []string{"resourceslices"}, Verbs: []string{"*"}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: rights},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: rights},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: rights}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)

	applyPolicies(t, "dra")
	controller := slicesAs(t, rest.ImpersonationConfig{UserName: "system:serviceaccount:edge:akri-dra-controller", Groups: []string{rights}})
	kubelet := slicesAs(t, rest.ImpersonationConfig{UserName: "system:node:node-a", Groups: []string{"system:nodes", rights}})
	others := map[string]resourceclient.ResourceSliceInterface{
		"a kubelet": kubelet,
		"the account of that name in another namespace": slicesAs(t, rest.ImpersonationConfig{
			UserName: "system:serviceaccount:other:akri-dra-controller", Groups: []string{rights},
		}),
		"an administrator": admin.ResourceV1().ResourceSlices(),
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := kubelet.Create(t.Context(), sliceOf(akriv0.Driver, "early"), metav1.CreateOptions{DryRun: dryRun})
		require.True(c, apierrors.IsInvalid(err), "%v", err)
	}, time.Minute, 100*time.Millisecond, "the policy is in force")

	_, err = controller.Create(t.Context(), sliceOf(akriv0.Driver, "akri"), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = kubelet.Create(t.Context(), sliceOf("gpu.example.com", "gpu"), metav1.CreateOptions{})
	require.NoError(t, err)
	for who, client := range others {
		const message = "only dra-controller writes the ResourceSlices of the driver akri.sh"
		_, err := client.Create(t.Context(), sliceOf(akriv0.Driver, "alien"), metav1.CreateOptions{})
		require.ErrorContains(t, err, message, who)
		slice, err := client.Get(t.Context(), "akri", metav1.GetOptions{})
		require.NoError(t, err, who)
		slice.Spec.Pool.Generation++
		_, err = client.Update(t.Context(), slice, metav1.UpdateOptions{})
		require.ErrorContains(t, err, message, who)
		slice, err = client.Get(t.Context(), "gpu", metav1.GetOptions{})
		require.NoError(t, err, who)
		slice.Spec.Pool.Generation++
		_, err = client.Update(t.Context(), slice, metav1.UpdateOptions{})
		require.NoError(t, err, who)
	}

	err = kubelet.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	require.ErrorContains(t, err, "only dra-controller writes")
	require.NoError(t, controller.Delete(t.Context(), "akri", metav1.DeleteOptions{}))
	require.NoError(t, admin.ResourceV1().ResourceSlices().DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
}

// dra-controller, whose rights RBAC cannot restrict to the objects of Akri, writes no others.
func TestObjectsOfOtherDrivers(t *testing.T) {
	const message = "dra-controller "
	applyPolicies(t, "dra")
	admin, err := kubernetes.NewForConfig(server.Config())
	require.NoError(t, err)
	controller := resourcesAs(t, rest.ImpersonationConfig{
		UserName: "system:serviceaccount:edge:akri-dra-controller", Groups: []string{"system:masters"},
	})
	slices, classes := controller.ResourceSlices(), controller.DeviceClasses()
	class := func(name, resource string) *resourcev1.DeviceClass {
		class := &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if resource != "" {
			class.Spec.ExtendedResourceName = &resource
		}
		return class
	}
	_, err = admin.ResourceV1().ResourceSlices().Create(t.Context(), sliceOf("gpu.example.com", "other"), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = admin.ResourceV1().DeviceClasses().Create(t.Context(), class("other", ""), metav1.CreateOptions{})
	require.NoError(t, err)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := slices.Create(t.Context(), sliceOf("gpu.example.com", "early"), metav1.CreateOptions{DryRun: dryRun})
		require.ErrorContains(c, err, message)
		require.ErrorContains(c, touch(t, classes, "other"), message)
	}, time.Minute, 100*time.Millisecond, "the policies are in force")
	for what, write := range map[string]func() error{
		"a slice of another driver": func() error {
			_, err := slices.Create(t.Context(), sliceOf("gpu.example.com", "new"), metav1.CreateOptions{})
			return err
		},
		"the slice of another driver": func() error { return slices.Delete(t.Context(), "other", metav1.DeleteOptions{}) },
		"all slices": func() error {
			return slices.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
		},
		"a change of another slice": func() error {
			slice, err := slices.Get(t.Context(), "other", metav1.GetOptions{})
			require.NoError(t, err)
			slice.Spec.Pool.Generation++
			_, err = slices.Update(t.Context(), slice, metav1.UpdateOptions{})
			return err
		},
		"a class of another driver": func() error {
			_, err := classes.Create(t.Context(), class("gpu.example.com", ""), metav1.CreateOptions{})
			return err
		},
		"the class of another driver": func() error { return classes.Delete(t.Context(), "other", metav1.DeleteOptions{}) },
		"the resource of another driver": func() error {
			_, err := classes.Create(t.Context(), class("gpu.akri.sh", "example.com/gpu"), metav1.CreateOptions{})
			return err
		},
		"a change of another class": func() error { return touch(t, classes, "other") },
	} {
		require.ErrorContains(t, write(), message, what)
	}

	// Its own objects, and the dry runs with which it reads the features of the API server.
	_, err = slices.Create(t.Context(), sliceOf(akriv0.Driver, "own"), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = classes.Create(t.Context(), class("cameras.akri.sh", "akri.sh/cameras"), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = classes.Create(t.Context(), class("akri-probe-x", "akri.sh/probe"), metav1.CreateOptions{DryRun: dryRun})
	require.NoError(t, err)
	require.NoError(t, slices.Delete(t.Context(), "own", metav1.DeleteOptions{}))
	require.NoError(t, classes.Delete(t.Context(), "cameras.akri.sh", metav1.DeleteOptions{}))

	require.NoError(t, admin.ResourceV1().ResourceSlices().Delete(t.Context(), "other", metav1.DeleteOptions{}))
	require.NoError(t, admin.ResourceV1().DeviceClasses().Delete(t.Context(), "other", metav1.DeleteOptions{}))
}

// With auto dra-controller creates the DeviceClass akri.sh. Otherwise the chart does.
func TestRootClass(t *testing.T) {
	classes := resourcesAs(t, rest.ImpersonationConfig{
		UserName: "system:serviceaccount:edge:akri-dra-controller", Groups: []string{"system:masters"},
	}).DeviceClasses()
	create := func() error {
		_, err := classes.Create(t.Context(), &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: akriv0.Driver}}, metav1.CreateOptions{})
		return err
	}
	applyPolicies(t, "dra")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.ErrorContains(c, create(), "dra-controller writes only DeviceClasses with the suffix .akri.sh")
	}, time.Minute, 100*time.Millisecond, "the policy is in force")
	applyPolicies(t, "auto")
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		err := create()
		require.True(c, err == nil || apierrors.IsAlreadyExists(err), "%v", err) // it exists if the first policy was late
	}, time.Minute, 100*time.Millisecond, "the policy is in force")
	require.NoError(t, classes.Delete(t.Context(), akriv0.Driver, metav1.DeleteOptions{}))
}

// touch changes a label of a DeviceClass.
func touch(t *testing.T, classes resourceclient.DeviceClassInterface, name string) error {
	t.Helper()
	class, err := classes.Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	class.Labels = map[string]string{"changed": fmt.Sprint(time.Now().UnixNano())}
	_, err = classes.Update(t.Context(), class, metav1.UpdateOptions{})
	return err
}
