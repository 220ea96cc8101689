package resources_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube"
	"akri.sh/libs/kube/kubetest"
	"akri.sh/libs/kube/resources"
)

var server *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &server) }

const timeout = time.Minute

// The decision follows the ConfigMap, and stays if the ConfigMap is deleted or created again
// without data.
func TestRecord(t *testing.T) {
	clientset, err := kubernetes.NewForConfig(server.Config())
	require.NoError(t, err)
	configMaps := clientset.CoreV1().ConfigMaps("default")
	empty := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: akriv0.ResourcesConfigMap}}

	record, err := resources.NewRecord(server.Config(), "default")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	running := make(chan struct{})
	go func() { defer close(running); record.Run(ctx.Done()) }()
	defer func() { cancel(); <-running }()
	require.NoError(t, kube.WaitForSync(ctx, record))
	require.Empty(t, record.Resources())
	next := func() {
		t.Helper()
		select {
		case <-record.Changed:
		case <-time.After(timeout):
			require.FailNow(t, "the change was not seen")
		}
	}

	created, err := configMaps.Create(ctx, empty, metav1.CreateOptions{})
	require.NoError(t, err)
	next()
	require.Empty(t, record.Resources())
	created.Data = map[string]string{akriv0.ResourcesKey: akriv0.ResourcesDRA}
	_, err = configMaps.Update(ctx, created, metav1.UpdateOptions{})
	require.NoError(t, err)
	next()
	require.Equal(t, akriv0.ResourcesDRA, record.Resources())

	require.NoError(t, configMaps.Delete(ctx, empty.Name, metav1.DeleteOptions{}))
	next()
	require.Equal(t, akriv0.ResourcesDRA, record.Resources())
	created, err = configMaps.Create(ctx, empty, metav1.CreateOptions{})
	require.NoError(t, err)
	next()
	require.Equal(t, akriv0.ResourcesDRA, record.Resources())
	created.Data = map[string]string{akriv0.ResourcesKey: akriv0.ResourcesDevicePlugin}
	_, err = configMaps.Update(ctx, created, metav1.UpdateOptions{})
	require.NoError(t, err)
	next()
	require.Equal(t, akriv0.ResourcesDevicePlugin, record.Resources())
}
