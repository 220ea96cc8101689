package e2e_test

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tutorial runs the commands of docs/handlers.md as they stand there: its handler finds the devices that an HTTP endpoint
// lists, and brokers use them. Only making a cluster and loading the image are left out, which this one has been through.
func tutorial(t *testing.T) {
	t.Cleanup(func() {
		for _, file := range []string{"configuration", "endpoint", "daemonset"} {
			shell(t, "kubectl delete --ignore-not-found -f deploy/samples/handler-http/"+file+".yaml")
		}
	})
	said := shell(t, section(t, "### Try it without a cluster"))
	require.Contains(t, said, "ok")
	// Once more when the registrar's socket came just then: registering twice is harmless.
	require.Regexp(t, `akri_handler_registrations_total\{handler="http",result="accepted"\} [1-9]`, said)

	commands := section(t, "### Run it on a cluster")
	for _, before := range []string{"make demo", "bin/akri-cluster load", "export KUBECONFIG="} {
		first, rest, _ := strings.Cut(commands, "\n")
		require.True(t, strings.HasPrefix(first, before), "%q", first)
		commands = rest
	}
	said = shell(t, commands)
	t.Log(said)
	lamp, fan := instanceName("http", "lamp", "", true), instanceName("http", "fan", "", true)
	awaitInstances(t, "default", "http", lamp, fan)
	require.Regexp(t, `"HTTP_DEVICE_NAME": ?"(lamp|fan)"`, said)
	for _, pod := range awaitBrokers(t, "default", "http", 2*len(akri.Cluster.Nodes())) {
		name := map[string]string{lamp: "lamp", fan: "fan"}[pod.Labels["akri.sh/instance"]]
		require.Equal(t, "http://"+name+".local", ask(t, &pod).Env["HTTP_DEVICE_URL"])
	}
}

var console = regexp.MustCompile("(?s)```console\n(.*?)```")

// section is all that a person is told to type below a heading of the tutorial.
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

// shell runs commands in the folder of the repository and returns what they print.
func shell(t *testing.T, commands string) string {
	t.Helper()
	// What runs in the background ends also when a command fails.
	command := exec.Command("bash", "-euo", "pipefail", "-c", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"+commands)
	command.Dir = akri.Path()
	command.Env = append(os.Environ(), "KUBECONFIG="+akri.Cluster.Kubeconfig(), "PATH="+akri.Bin()+":"+os.Getenv("PATH"))
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)
	return string(output)
}
