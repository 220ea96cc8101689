package e2e_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// sampleHandler has the tests with the sample handler one after the other: a node has one socket of
// its name.
func sampleHandler(t *testing.T) {
	t.Run("hangs", stoppedHandler)
	t.Run("tutorial", tutorial)
}

// tutorial runs the commands of docs/handlers.md: its handler discovers the devices of an HTTP
// endpoint, and brokers use them. It skips the commands that create a cluster and load the image.
func tutorial(t *testing.T) {
	t.Cleanup(func() {
		for _, file := range []string{"configuration", "endpoint", "daemonset"} {
			shell(t, "kubectl delete --ignore-not-found -f deploy/samples/handler-http/"+file+".yaml")
		}
	})
	output := shell(t, section(t, "### Try it without a cluster"))
	require.Contains(t, output, "ok")
	// The handler registers again if the registrar's socket was created at that moment.
	require.Regexp(t, `akri_handler_registrations_total\{handler="http",result="accepted"\} [1-9]`, output)

	commands := section(t, "### Run it on a cluster")
	for _, skipped := range []string{"make demo", "bin/akri-cluster load", "export KUBECONFIG="} {
		first, rest, _ := strings.Cut(commands, "\n")
		require.True(t, strings.HasPrefix(first, skipped), "%q", first)
		commands = rest
	}
	output = shell(t, commands)
	t.Log(output)
	lamp, fan := instanceName("http", "lamp", "", true), instanceName("http", "fan", "", true)
	awaitInstances(t, "default", "http", lamp, fan)
	require.Regexp(t, `"HTTP_DEVICE_NAME": ?"(lamp|fan)"`, output)
	for _, pod := range awaitBrokers(t, "default", "http", 2*len(akri.Cluster.Nodes())) {
		name := map[string]string{lamp: "lamp", fan: "fan"}[pod.Labels["akri.sh/instance"]]
		require.Equal(t, "http://"+name+".local", query(t, &pod).Env["HTTP_DEVICE_URL"])
	}
}

var console = regexp.MustCompile("(?s)```console\n(.*?)```")

// section returns the console commands below a heading of the tutorial.
func section(t *testing.T, heading string) string {
	t.Helper()
	text, err := os.ReadFile(akri.Path("docs", "handlers.md"))
	require.NoError(t, err)
	_, below, found := strings.Cut(string(text), heading+"\n")
	require.True(t, found, "docs/handlers.md has no %q", heading)
	below, _, _ = strings.Cut(below, "\n#")
	var commands strings.Builder
	for _, block := range console.FindAllStringSubmatch(below, -1) {
		commands.WriteString(block[1])
	}
	return commands.String()
}

// shell runs commands in the repository and returns their output.
func shell(t *testing.T, commands string) string {
	t.Helper()
	// Background processes are also killed if a command fails.
	command := exec.Command("bash", "-euo", "pipefail", "-c", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"+commands)
	command.Dir = akri.Path()
	command.Env = append(os.Environ(), "KUBECONFIG="+akri.Cluster.Kubeconfig(), "PATH="+akri.Bin()+":"+os.Getenv("PATH"))
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)
	return string(output)
}
