package dracontroller_test

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube/kubetest"
	dracontroller "akri.sh/services/dra-controller"
)

const devicePlugin, dra = akriv0.ResourcesDevicePlugin, akriv0.ResourcesDRA

// createRecord creates the objects of the chart of an installation that lets the cluster decide.
func (f *fixture) createRecord() {
	create(f.T, f.clientset.CoreV1().ConfigMaps(namespace), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: akriv0.ResourcesConfigMap}})
	create(f.T, f.clientset.RbacV1().ClusterRoles(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{
		Name:        "akri-dra-controller",
		Labels:      map[string]string{"app.kubernetes.io/managed-by": "Helm", "other": "label"},
		Annotations: map[string]string{"meta.helm.sh/release-name": "akri", "meta.helm.sh/release-namespace": "edge", "other": "annotation"},
	}})
	f.Cleanup(func() {
		require.NoError(f, f.clientset.CoreV1().ConfigMaps(namespace).Delete(context.Background(), akriv0.ResourcesConfigMap, metav1.DeleteOptions{}))
		require.NoError(f, f.clientset.RbacV1().ClusterRoles().Delete(context.Background(), "akri-dra-controller", metav1.DeleteOptions{}))
	})
}

func (f *fixture) decide(resources string) {
	f.Helper()
	kubetest.Edit(f, f.clientset.CoreV1().ConfigMaps(namespace), akriv0.ResourcesConfigMap, func(configMap *corev1.ConfigMap) {
		configMap.Data = map[string]string{akriv0.ResourcesKey: resources}
	})
}

func (f *fixture) label(name, value string) {
	f.Helper()
	kubetest.Edit(f, f.clientset.CoreV1().Nodes(), name, func(node *corev1.Node) { node.Labels[akriv0.ResourcesLabel] = value })
}

// info sets the versions of the kubelet and of the runtime.
func (f *fixture) info(name, kubelet, runtime string) {
	f.Helper()
	kubetest.EditStatus(f, f.clientset.CoreV1().Nodes(), name, func(node *corev1.Node) {
		node.Status.NodeInfo.KubeletVersion, node.Status.NodeInfo.ContainerRuntimeVersion = kubelet, runtime
	})
}

// awaitNodes waits until the nodes are those of the slice of the device.
func (f *fixture) awaitNodes(nodes ...string) {
	f.Helper()
	f.eventually(func() bool {
		slice := f.slice("cameras-8120fe")
		if slice == nil || slice.Spec.NodeSelector == nil {
			return len(nodes) == 0
		}
		return slices.Equal(slice.Spec.NodeSelector.NodeSelectorTerms[0].MatchExpressions[0].Values, nodes)
	})
}

// A node has devices for claims if its label, its kubelet and its runtime, or the record state it.
// Without any such node nothing is published.
func TestAuto(t *testing.T) {
	f := newFixture(t, server)
	f.createRecord()
	f.label("b", devicePlugin)
	f.addInstance("cameras-8120fe", true, "a", "b")
	f.run(dracontroller.Config{Resources: "auto"})
	f.decide(dra)
	f.awaitNodes("a")
	root, err := f.clientset.ResourceV1().DeviceClasses().Get(t.Context(), akriv0.Driver, metav1.GetOptions{})
	require.NoError(t, err)
	role, err := f.clientset.RbacV1().ClusterRoles().Get(t.Context(), "akri-dra-controller", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, []metav1.OwnerReference{
		{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole", Name: role.Name, UID: role.UID},
	}, root.OwnerReferences)
	require.Equal(t, `device.driver == "akri.sh"`, root.Spec.Selectors[0].CEL.Expression)
	// Helm creates no object that exists, unless it is one of the release.
	require.Equal(t, map[string]string{"app.kubernetes.io/managed-by": "Helm"}, root.Labels)
	require.Equal(t, map[string]string{"meta.helm.sh/release-name": "akri", "meta.helm.sh/release-namespace": "edge"}, root.Annotations)

	f.label("b", "")
	f.awaitNodes("a", "b")
	f.info("a", "v1.35.4", "containerd://2.4.2")
	f.awaitNodes("b")
	f.info("a", "v1.36.0", "containerd://2.4.2")
	f.awaitNodes("a", "b")
	f.info("a", "v1.36.0", "containerd://1.7.30")
	f.awaitNodes("b")
	f.label("a", dra)
	f.awaitNodes("a", "b")
	f.decide(devicePlugin)
	f.awaitNodes("a")

	// The garbage collector then removes all other objects.
	f.label("a", "")
	f.eventually(func() bool {
		_, err := f.clientset.ResourceV1().DeviceClasses().Get(t.Context(), akriv0.Driver, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	f.label("a", dra)
	f.eventually(func() bool { return slices.Contains(f.classes(), akriv0.Driver) })
	f.awaitNodes("a")
}

// An API server need not have Dynamic Resource Allocation: the process is ready, leads and records
// device plugins.
func TestAutoWithoutAPI(t *testing.T) {
	without, err := server.Join(t.Context(), "--runtime-config=resource.k8s.io/v1=false", "--endpoint-reconciler-type=none")
	require.NoError(t, err)
	t.Cleanup(without.Stop)
	f := newFixture(t, without)
	f.createRecord()
	config := dracontroller.Config{Resources: "auto"}
	config.REST = without.Config()
	target, err := url.Parse(config.REST.Host)
	require.NoError(t, err)
	config.REST.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, target.Host)
	}
	var requests atomic.Int32
	config.REST.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			if request.Method == http.MethodGet && strings.HasPrefix(request.URL.Path, "/apis/resource.k8s.io/") {
				requests.Add(1)
			}
			return next.RoundTrip(request)
		})
	})
	health := f.run(config)
	var data map[string]string
	f.eventually(func() bool {
		configMap, err := f.clientset.CoreV1().ConfigMaps(namespace).Get(t.Context(), akriv0.ResourcesConfigMap, metav1.GetOptions{})
		require.NoError(t, err)
		data = configMap.Data
		return len(data) > 0
	})
	require.Equal(t, devicePlugin, data[akriv0.ResourcesKey])
	require.Equal(t, akriv0.ResourcesFeaturesMissing, data[akriv0.ResourcesReasonKey])
	require.NoError(t, health.Ready(t.Context()))
	require.Zero(t, requests.Load(), "only dry runs, in which the API server shows that it does not have the API")
	require.Zero(t, f.logged.Len(), "%v", f.logged.All())
}
