package requirements_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/requirements"
)

// How Pods get devices is not known without a record, and for a user who may not read it.
func TestResources(t *testing.T) {
	c := newCluster(t)
	config := server.Config()
	config.Impersonate = rest.ImpersonationConfig{UserName: "viewer"}
	viewer, err := discovery.NewDiscoveryClientForConfig(config)
	require.NoError(t, err)
	requireResources := func(want, namespace string) {
		t.Helper()
		found, err := c.reader.Resources(t.Context(), namespace)
		require.NoError(t, err)
		require.Equal(t, want, found)
		found, err = requirements.NewReader(viewer.RESTClient()).Resources(t.Context(), namespace)
		require.NoError(t, err)
		require.Empty(t, found)
	}
	requireResources("", "")
	requireResources("", "default")

	configMaps := kubernetes.NewForConfigOrDie(server.Config()).CoreV1().ConfigMaps("default")
	record, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: akriv0.ResourcesConfigMap}}, metav1.CreateOptions{})
	require.NoError(t, err)
	requireResources("", "default")
	record.Data = map[string]string{akriv0.ResourcesKey: akriv0.ResourcesDRA}
	_, err = configMaps.Update(t.Context(), record, metav1.UpdateOptions{})
	require.NoError(t, err)
	requireResources(akriv0.ResourcesDRA, "default")
}
