package console_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/inspect/cluster"

	"akri.sh/integration/browser"
	"akri.sh/integration/cluster/binaries"
)

// startService runs the console of the cluster and returns its address and its process.
func startService(t *testing.T) (string, *os.Process) {
	t.Helper()
	root, err := binaries.Root()
	require.NoError(t, err)
	binary := filepath.Join(t.TempDir(), "console")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/console")
	build.Dir, build.Env = filepath.Join(root, "services", "console"), append(os.Environ(), "CGO_ENABLED=0")
	output, err := build.CombinedOutput()
	require.NoError(t, err, "%s", output)
	addresses := []string{freeAddress(t), freeAddress(t)}
	command := exec.CommandContext(context.WithoutCancel(t.Context()), binary, "--address", addresses[0], "--admin-address", addresses[1], "--kubeconfig", kubeconfig(t))
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(t, command.Start())
	t.Cleanup(func() {
		require.NoError(t, command.Process.Signal(syscall.SIGTERM))
		require.NoError(t, command.Wait())
	})
	require.Eventually(t, func() bool {
		response, err := http.Get("http://" + addresses[1] + "/readyz") //nolint:noctx // only in tests
		if err != nil {
			return false
		}
		defer response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, time.Minute, 50*time.Millisecond)
	return "https://" + addresses[0], command.Process
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // only in tests
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

// kubeconfig writes a kubeconfig file for the API server.
func kubeconfig(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: server.Config().Host, InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: server.Config().BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, file))
	return file
}

// viewer returns a token of a new service account, which has the ClusterRole unless it is empty.
func viewer(t *testing.T, client *cluster.Client, name, role string) string {
	t.Helper()
	accounts := client.Kubernetes.CoreV1().ServiceAccounts("default")
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	if role != "" {
		_, err = client.Kubernetes.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "default", Name: name}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	token, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	return token.Status.Token
}

// TestLogin logs in to the console of the cluster, and out in another page.
func TestLogin(t *testing.T) {
	client, err := cluster.New(server.Config())
	require.NoError(t, err)
	token, other := viewer(t, client, "viewer", "cluster-admin"), viewer(t, client, "without-rights", "")
	origin, _ := startService(t)
	b := browser.Start(t, origin, "status of 401", "status of 403")
	look := func(name string) {
		for _, window := range []struct {
			width        int64
			scheme, name string
		}{{390, "dark", "-phone-dark"}, {1280, "light", ""}} {
			b.Show(t, window.width, 900, window.scheme)
			b.CheckAccessibility(t)
			b.Await(t, "document.documentElement.scrollWidth <= window.innerWidth")
			b.Screenshot(t, name+window.name)
		}
	}
	login := func(token string) {
		b.Do(t, "log in", chromedp.Evaluate[chromedp.Void](fmt.Sprintf(
			"document.querySelector('input[name=token]').value = %q; document.querySelector('form').requestSubmit(); 0", token)))
	}
	b.Do(t, "open", chromedp.Navigate(origin+"/devices?q=login"))
	b.Await(t, "document.activeElement.name === 'token'")
	look("login")
	login("wrong")
	b.Await(t, "document.querySelector('[role=alert]')?.innerText.includes('does not accept')")
	look("login-refused")

	login(other)
	b.Await(t, "document.body.innerText.includes('without-rights may not list configurations.akri.sh')")
	look("forbidden")
	b.Do(t, "log out", chromedp.Evaluate[chromedp.Void]("document.querySelector('form').requestSubmit(); 0"))
	b.Await(t, "document.querySelector('input[name=token]') !== null")

	b.Do(t, "open", chromedp.Navigate(origin+"/devices?q=login"))
	login(token)
	b.Await(t, "typeof source !== 'undefined' && source.readyState === EventSource.OPEN && location.search === '?q=login' && document.querySelectorAll('tbody tr').length === 0")
	_, err = client.Instances.In("default").Create(t.Context(), &akriv0.Instance{
		ObjectMeta: metav1.ObjectMeta{Name: "login-000001", Namespace: "default"},
		Spec:       akriv0.InstanceSpec{ConfigurationName: "login", CDIName: "akri.sh/login=1", Capacity: 1},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	b.Await(t, "document.getElementById('device-default-login-000001') !== null")
	look("viewer")
	// A login page in another tab reports the logout.
	b.Do(t, "log out in another page", chromedp.Evaluate[chromedp.Void](
		"fetch('/logout', {method: 'POST'}).then(() => new BroadcastChannel('akri-login').postMessage('')); 0"))
	b.Await(t, "document.querySelector('input[name=token]') !== null")
	require.NoError(t, client.Instances.In("default").Delete(t.Context(), "login-000001", metav1.DeleteOptions{}))
}
