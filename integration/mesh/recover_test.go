package mesh_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"akri.sh/libs/kube/kubetest"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
)

// The first form does not have dra-controller, and the second one does.
const (
	devicePlugins = "--set=global.resources=devicePlugin"
	dynamic       = "--set=global.resources=dra"
)

// TestRecover kills helm while it waits for the workloads, of which none becomes ready without a
// node. The next installation works, and objects of a killed upgrade are removed.
func TestRecover(t *testing.T) {
	akri := emptyCluster(t)
	require.NoError(t, akri.Recover(t.Context()), "no release")

	killHelm(t, akri, "pending-install", devicePlugins)
	_, err := akri.Helm(t.Context(), upgrade(akri, devicePlugins)...)
	require.ErrorContains(t, err, "another operation")
	require.NoError(t, akri.Recover(t.Context()))
	_, err = akri.Helm(t.Context(), upgrade(akri, devicePlugins)...)
	require.NoError(t, err)
	require.NoError(t, akri.Recover(t.Context()), "a deployed release")

	killHelm(t, akri, "pending-upgrade", dynamic)
	require.NoError(t, akri.Recover(t.Context()))
	err = driver(t.Context(), akri)
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	_, err = akri.Helm(t.Context(), upgrade(akri, dynamic)...)
	require.NoError(t, err)
}

// TestInterruptedInstallation ends the context of an installation. helm records that it has failed,
// so that another one works.
func TestInterruptedInstallation(t *testing.T) {
	akri := emptyCluster(t)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- akri.Install(ctx) }()
	awaitStatus(t, akri, "pending-install")
	cancel()
	require.Error(t, <-ended)

	_, err := akri.Helm(t.Context(), upgrade(akri)...)
	require.NoError(t, err)
}

// emptyCluster returns Akri on an API server without nodes.
func emptyCluster(t *testing.T) *mesh.Mesh {
	t.Helper()
	server, err := kubetest.StartWithoutCRDs(t.Context())
	require.NoError(t, err)
	t.Cleanup(server.Stop)
	config := server.Config()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, file))
	running, err := cluster.FromKubeconfig(file)
	require.NoError(t, err)
	akri, err := mesh.New(t.Context(), running)
	require.NoError(t, err)
	return akri
}

func upgrade(akri *mesh.Mesh, flags ...string) []string {
	return append([]string{"upgrade", "--install", mesh.Release, akri.Path("charts", "akri"), "--namespace", mesh.Namespace, "--create-namespace"}, flags...)
}

// killHelm starts an installation or upgrade and kills it when its objects exist.
func killHelm(t *testing.T, akri *mesh.Mesh, status string, flags ...string) {
	t.Helper()
	command := exec.Command(filepath.Join(akri.Bin(), "helm"), upgrade(akri, append(flags, "--wait", "--debug")...)...)
	command.Env = append(os.Environ(), "KUBECONFIG="+akri.Cluster.Kubeconfig())
	require.NoError(t, command.Start())
	awaitStatus(t, akri, status)
	if status == "pending-upgrade" {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, mesh.Await(ctx, "objects of the upgrade", func(ctx context.Context) error { return driver(ctx, akri) }))
	}
	require.NoError(t, command.Process.Kill())
	require.Error(t, command.Wait())
}

// driver returns an error unless the object exists that only Dynamic Resource Allocation has.
func driver(ctx context.Context, akri *mesh.Mesh) error {
	_, err := akri.Kubernetes.AppsV1().Deployments(mesh.Namespace).Get(ctx, "akri-dra-controller", metav1.GetOptions{})
	return err
}

// awaitStatus waits until the last revision of the release has the status.
func awaitStatus(t *testing.T, akri *mesh.Mesh, status string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	secrets := akri.Kubernetes.CoreV1().Secrets(mesh.Namespace)
	require.NoError(t, mesh.AwaitObjects(ctx, status, secrets, metav1.ListOptions{LabelSelector: "owner=helm,status=" + status},
		func(found []corev1.Secret) error {
			if len(found) == 0 {
				return fmt.Errorf("no release is %s", status)
			}
			return nil
		}))
}
