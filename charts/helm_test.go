package charts_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"akri.sh/libs/kube/kubetest"
)

var server *kubetest.Server

func TestMain(m *testing.M) { kubetest.Main(m, &server) }

// commandTimeout is the time limit of a command. Most take less than a second.
const commandTimeout = 2 * time.Minute

// binary returns the path of helm or kubectl, which `make binaries` builds.
func binary(t *testing.T, name string) string {
	t.Helper()
	cache := os.Getenv("AKRI_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		require.NoError(t, err)
		cache = filepath.Join(user, "akri")
	}
	return filepath.Join(cache, "bin", name)
}

// run executes helm or kubectl and returns the standard output.
func run(t *testing.T, name string, arguments ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, binary(t, name), arguments...)
	// SIGQUIT prints the stacks of all goroutines.
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGQUIT) }
	home := t.TempDir()
	command.Env = append(environOfCommands(), "HOME="+home, "XDG_CACHE_HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("%s %s: %w:\n%s%s", name, strings.Join(arguments, " "), err, &stdout, &stderr)
	}
	return stdout.String(), nil
}

// environOfCommands returns that of this process for helm and kubectl. They end before they need
// much memory, and collecting garbage takes a third of their CPU time.
func environOfCommands() []string { return append(os.Environ(), "GOGC=off") }

// render returns the manifests of the chart akri with the arguments of helm. It renders the same
// arguments once, because the tests change neither the chart nor files with values.
func render(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	once, _ := renders.LoadOrStore(strings.Join(arguments, "\x00"), sync.OnceValues(func() (string, error) {
		return run(t, "helm", append([]string{"template", "akri", "akri", "--namespace", "akri-system"}, arguments...)...)
	}))
	return once.(func() (string, error))()
}

// renders has a function for the arguments of each render.
var renders sync.Map

// set returns the arguments --set VALUE for all values.
func set(values ...string) []string {
	var arguments []string
	for _, value := range values {
		arguments = append(arguments, "--set", value)
	}
	return arguments
}

// kubeconfig returns a kubeconfig file for the API server of the tests.
func kubeconfig(t *testing.T) string {
	t.Helper()
	return kubeconfigOf(t, server)
}

func kubeconfigOf(t *testing.T, server *kubetest.Server) string {
	t.Helper()
	config := server.Config()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, file))
	return file
}
