package charts_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// within is how long a command may take. Most take less than a second.
const within = 2 * time.Minute

// program runs helm or kubectl, which `make binaries` builds, and returns what it prints.
func program(t *testing.T, name string, arguments ...string) (string, error) {
	t.Helper()
	cache := os.Getenv("AKRI_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		require.NoError(t, err)
		cache = filepath.Join(user, "akri")
	}
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(cache, "bin", name), arguments...)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGQUIT) } // it says what it waits for
	home := t.TempDir()
	command.Env = append(os.Environ(), "HOME="+home, "XDG_CACHE_HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_DATA_HOME="+home)
	var output, problem bytes.Buffer
	command.Stdout, command.Stderr = &output, &problem
	if err := command.Run(); err != nil {
		return "", &programError{name + " " + strings.Join(arguments, " "), output.String() + problem.String()}
	}
	return output.String(), nil
}

type programError struct{ command, output string }

func (e *programError) Error() string { return e.command + ":\n" + e.output }

// render returns what the umbrella chart makes of values, each as for --set.
func render(t *testing.T, arguments ...string) (string, error) {
	t.Helper()
	return program(t, "helm", append([]string{"template", "akri", "akri", "--namespace", "akri-system"}, arguments...)...)
}

func set(values ...string) []string {
	var arguments []string
	for _, value := range values {
		arguments = append(arguments, "--set", value)
	}
	return arguments
}

// kubeconfig names the test's API server.
func kubeconfig(t *testing.T) string {
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
