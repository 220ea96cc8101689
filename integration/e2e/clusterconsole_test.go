package e2e_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"iter"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/integration/mesh"
)

// consoleViewers are a service account that may list what the console shows, as docs/console.md
// grants it, and one without rights.
const consoleViewers = `
apiVersion: v1
kind: ServiceAccount
metadata: {name: e2e-viewer}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: e2e-no-rights}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: e2e-viewer}
rules:
  - {apiGroups: [akri.sh], resources: [configurations, instances], verbs: [list]}
  - {apiGroups: ["", batch, apps], resources: [pods, nodes, events, jobs, daemonsets, deployments], verbs: [list]}
  - {apiGroups: [admissionregistration.k8s.io], resources: [validatingwebhookconfigurations], verbs: [list]}
  - {apiGroups: [resource.k8s.io], resources: [resourceclaims, resourceclaimtemplates, resourceslices], verbs: [list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-viewer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: e2e-viewer}
subjects: [{kind: ServiceAccount, name: e2e-viewer, namespace: default}]
`

// consoleOfTheCluster uses the console of the installation. A service account logs in with its
// token and sees a device, another one learns which right it lacks.
func consoleOfTheCluster(t *testing.T) {
	apply(t, consoleViewers)
	apply(t, echoConfiguration("e2e-console", 1, "", "foo0"))
	awaitInstances(t, "default", "e2e-console", "e2e-console-8120fe")
	address := forward(t, mesh.Namespace, "service/akri-console", "443")

	page := logIn(t, address, "e2e-viewer", "/devices?q=e2e-console")
	require.Equal(t, http.StatusOK, page.code)
	require.Contains(t, page.text, "default/e2e-console-8120fe")
	require.Contains(t, page.text, "system:serviceaccount:default:e2e-viewer")
	require.NotContains(t, page.text, "You may not list")

	page = logIn(t, address, "e2e-no-rights", "/devices")
	require.Equal(t, http.StatusForbidden, page.code)
	require.Contains(t, page.text, "system:serviceaccount:default:e2e-no-rights may not list configurations.akri.sh or instances.akri.sh")
	require.NotContains(t, page.text, "e2e-console")
}

type consolePage struct {
	code int
	text string
}

// logIn logs in with a token of a service account and returns the page to which the login leads.
func logIn(t *testing.T, address, account, next string) consolePage {
	t.Helper()
	token, err := akri.Kubectl(t.Context(), "", "create", "token", account)
	require.NoError(t, err)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Jar: jar, Timeout: timeout}
	form := url.Values{"token": {token}, "next": {next}}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+address+"/login", strings.NewReader(form.Encode()))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return consolePage{response.StatusCode, string(text)}
}

// forward forwards a port of the machine to an object until the end of the test. It returns the
// address. kubectl ends when one of the connections fails, such as one that the Pod has reset
// (issue 111825 of Kubernetes), so it is started again.
func forward(t *testing.T, namespace, object, port string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	addresses, ended := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(ended)
		defer close(addresses)
		local := ""
		for forwards := true; forwards && ctx.Err() == nil; {
			forwards = false
			for line := range forwarding(ctx, t, namespace, object, local+":"+port) {
				_, rest, found := strings.Cut(line, "Forwarding from 127.0.0.1:")
				if !found {
					continue
				}
				forwards = true
				if local == "" {
					local = strings.Fields(rest)[0]
					addresses <- "127.0.0.1:" + local
				}
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-ended })

	address, forwards := <-addresses
	require.True(t, forwards, "kubectl port-forward to %s", object)
	return address
}

// forwarding runs kubectl port-forward and yields the lines that it prints, one for each
// connection.
func forwarding(ctx context.Context, t *testing.T, namespace, object, ports string) iter.Seq[string] {
	t.Helper()
	return func(yield func(string) bool) {
		command := exec.CommandContext(ctx, filepath.Join(akri.Bin(), "kubectl"), "port-forward", "--namespace", namespace, object, ports)
		command.Env = append(os.Environ(), "KUBECONFIG="+akri.Cluster.Kubeconfig())
		var message strings.Builder
		command.Stderr = &message
		output, err := command.StdoutPipe()
		if err == nil {
			err = command.Start()
		}
		if err != nil {
			t.Errorf("start kubectl port-forward: %v", err)
			return
		}
		for lines := bufio.NewScanner(output); lines.Scan() && yield(lines.Text()); {
		}
		if err := command.Wait(); ctx.Err() == nil {
			t.Logf("kubectl port-forward to %s has ended: %v: %s", object, err, message.String())
		}
	}
}
