package e2e_test

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"akri.sh/integration/mesh"
)

func uninstall(t *testing.T) {
	// The uninstallation removes the Instances, brokers and Services of a Configuration with a
	// device.
	applyZram(t, zramConfiguration)
	zram := plug(t, "uninstall")
	awaitInstances(t, "default", "e2e-zram", values(zramInstances(zram))...)
	awaitBrokers(t, "default", "e2e-zram", len(akri.Cluster.Nodes()))
	awaitService(t, "default", "e2e-zram-svc", true)
	requireUninstalled(t, "e2e-zram", selected.dynamic)
}

// requireUninstalled uninstalls Akri while a Configuration in the namespace default has Instances
// and brokers. claims is set if the brokers have ResourceClaims: they end before the driver does.
func requireUninstalled(t *testing.T, configuration string, claims bool) {
	t.Helper()
	text, err := akri.Uninstall(t.Context())
	require.NoError(t, err)
	ended := regexp.MustCompile(`Removed the brokers \(Pods: [1-9]\d*, Jobs: \d+\)\.`).MatchString(text)
	require.Equal(t, claims, ended, text)
	require.Regexp(t, `Removed the objects of Akri \(Instances: \d+, Services: \d+, Pods: \d+, Jobs: \d+\)\.`, text)
	require.NotContains(t, text, "{", "users read sentences, not JSON")

	left, err := akri.Instances.In("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, left.Items)
	managed := metav1.ListOptions{LabelSelector: "controller=akri.sh"}
	awaitRemoved[corev1.Pod](t, "brokers", akri.Kubernetes.CoreV1().Pods(""), managed)
	awaitRemoved[corev1.Service](t, "Services", akri.Kubernetes.CoreV1().Services(""), managed)
	awaitRemoved[corev1.Pod](t, "pods in the namespace", akri.Kubernetes.CoreV1().Pods(mesh.Namespace), metav1.ListOptions{})
	kept, err := akri.Configurations.In("default").Get(t.Context(), configuration, metav1.GetOptions{})
	require.NoError(t, err, "the user's Configuration must stay")
	require.Empty(t, kept.Finalizers)
	for _, node := range akri.Cluster.Nodes() {
		for _, dir := range []string{node.AkriDir(), node.RunDir(), filepath.Join(node.KubeletDir(), "device-plugins")} {
			require.Empty(t, sockets(t, dir), "sockets in %s", dir)
		}
	}
	output, err := akri.Kubectl(t.Context(), "", "get", "clusterroles,clusterrolebindings", "-o", "name")
	require.NoError(t, err)
	require.NotContains(t, output, "akri")
}

// awaitRemoved waits until the options select no object.
func awaitRemoved[T any, L runtime.Object](t *testing.T, what string, objects mesh.Objects[L], options metav1.ListOptions) {
	t.Helper()
	awaitObjects(t, "removal of "+what, objects, options, func(found []T) error {
		if len(found) > 0 {
			return fmt.Errorf("%d are left", len(found))
		}
		return nil
	})
}

// sockets returns the sockets in a directory of a node, except the kubelet's.
func sockets(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil && entry.Type() == fs.ModeSocket && !strings.HasSuffix(path, "/kubelet.sock") {
			found = append(found, path)
		}
		return err
	})
	require.NoError(t, err)
	return found
}
