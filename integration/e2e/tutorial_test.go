package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/integration/mesh"
)

// sampleHandler has the tests with the sample handler one after the other: a node has one socket of
// its name.
func sampleHandler(t *testing.T) {
	inOrder(t, stoppedHandler, tutorial)
}

// tutorial runs the commands of a tutorial: its handler discovers the devices of an HTTP endpoint,
// brokers use them, and an application reads them through the Services of the brokers. It skips the
// commands that create a cluster and load the image.
func tutorial(t *testing.T) {
	t.Cleanup(func() {
		for _, file := range []string{"application", "configuration", "endpoint", "daemonset"} {
			shell(t, "kubectl delete --ignore-not-found -f deploy/samples/handler-http/"+file+".yaml")
		}
	})
	run := func(heading string, skipped ...string) string {
		t.Helper()
		commands := section(t, "tutorials/handler-to-application.md", "## "+heading)
		for _, prefix := range skipped {
			first, rest, _ := strings.Cut(commands, "\n")
			require.True(t, strings.HasPrefix(first, prefix), "%q", first)
			commands = rest
		}
		output := shell(t, commands)
		t.Log(output)
		return output
	}
	output := run("Try the handler without a cluster")
	require.Contains(t, output, "ok")
	// The handler registers again if the registrar's socket was created at that moment.
	require.Regexp(t, `akri_handler_registrations_total\{handler="http",result="accepted"\} [1-9]`, output)

	run("Run the handler", "make demo", "bin/akri-cluster load", "export KUBECONFIG=")
	run("Discover devices")
	lamp, fan := instanceName("http", "lamp", "", true), instanceName("http", "fan", "", true)
	awaitInstances(t, "default", "http", lamp, fan)
	require.Regexp(t, `\{"lamp":\{"on":true\}\}|\{"fan":\{"rpm":1200\}\}`, run("Use a device in a broker"))
	awaitBrokers(t, "default", "http", 2*len(akri.Cluster.Nodes()))

	output = run("Use the brokers in an application")
	require.Contains(t, output, `"`+lamp+`-svc":{"lamp":{"on":true}}`)
	require.Contains(t, output, `"`+fan+`-svc":{"fan":{"rpm":1200}}`)
	require.Regexp(t, `"http-svc":\{"(lamp|fan)":`, output)
	run("Remove it")
}

var console = regexp.MustCompile("(?s)```console\n(.*?)```")

// section returns the console commands below a heading of a page in docs, with those below its
// subheadings. The other code blocks are for nodes, or change the installation. Replacements are
// pairs of a text and its replacement.
func section(t *testing.T, page, heading string, replacements ...string) string {
	t.Helper()
	text, err := os.ReadFile(akri.Path("docs", page))
	require.NoError(t, err)
	_, below, found := strings.Cut(string(text), "\n"+heading+"\n")
	require.True(t, found, "docs/%s has no %q", page, heading)
	below, _, _ = strings.Cut(below, "\n#")
	var commands strings.Builder
	for _, block := range console.FindAllStringSubmatch(below, -1) {
		commands.WriteString(block[1])
	}
	require.NotEmpty(t, commands.String(), "docs/%s has no console commands below %q", page, heading)
	result := commands.String()
	for i := 0; i < len(replacements); i += 2 {
		result = strings.ReplaceAll(result, replacements[i], replacements[i+1])
	}
	return result
}

// tutorialOf returns a function that runs the commands of a section of a tutorial and returns their
// output. The commands get another manifest instead of the sample, with the images and the devices
// of the tests. At the end of the test the objects are deleted.
func tutorialOf(t *testing.T, page, sample, manifest string) func(heading string, replacements ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), sample)
	require.NoError(t, os.WriteFile(file, []byte(manifest), 0o600))
	t.Cleanup(func() { require.NoError(t, akri.DeleteText(context.WithoutCancel(t.Context()), manifest)) })
	return func(heading string, replacements ...string) string {
		t.Helper()
		output := shell(t, section(t, page, "## "+heading, append(replacements, "deploy/samples/"+sample, file)...))
		t.Log(output)
		return output
	}
}

// notRun are the commands of the READMEs that readme does not run, by their beginning, with the
// reason.
var notRun = map[string]string{
	"make demo":    "it starts a cluster of its own; TestKilledDemo runs its program",
	"make test":    "it runs this test",
	"make bench":   "it takes minutes and measures this machine",
	"make soak":    "it takes an hour",
	"make fuzz":    "it takes minutes",
	"make docs":    "verify-docs runs it",
	"helm install": "Akri is installed; TestLifecycle runs it",
}

// readme runs the console commands of the README and of the first page of the documentation as they
// stand, and returns their output. The samples of its directory are those of `make samples`. The
// objects remain. Of targets of make that it does not run, `make help` has the name.
func readme(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"bin", "charts", "Makefile", "go.work", "tools"} {
		require.NoError(t, os.Symlink(akri.Path(name), filepath.Join(dir, name)))
	}
	runIn(t.Context(), t, akri.Path(), nil, "tools/samples.sh", "ghcr.io/akri-mesh", mesh.DevTag, filepath.Join(dir, "deploy", "samples"))

	commands, skipped, targets := "", map[string]bool{}, []string{}
	for _, page := range []string{"README.md", filepath.Join("docs", "README.md")} {
		text, err := os.ReadFile(akri.Path(page))
		require.NoError(t, err)
		blocks := console.FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, blocks, page)
		for _, block := range blocks {
			for line := range strings.Lines(block[1]) {
				prefix := notRunPrefix(line)
				if prefix == "" {
					commands += line
					continue
				}
				skipped[prefix] = true
				if words := strings.Fields(line); words[0] == "make" {
					targets = append(targets, words[1])
				}
			}
		}
	}
	require.Len(t, skipped, len(notRun), "the READMEs have only %v", skipped)
	output := shellIn(t, dir, commands)
	t.Log(output)
	for _, target := range targets {
		require.Regexp(t, `(?m)^ +`+target+` `, output, "make help")
	}
	return output
}

func notRunPrefix(line string) string {
	for prefix := range notRun {
		if strings.HasPrefix(line, prefix) {
			return prefix
		}
	}
	return ""
}

// shell runs commands in the repository and returns their output.
func shell(t *testing.T, commands string) string {
	t.Helper()
	return shellIn(t, akri.Path(), commands)
}

// shellIn runs commands in a directory and returns their output.
func shellIn(t *testing.T, dir, commands string) string {
	t.Helper()
	// Background processes are also killed if a command fails.
	command := exec.Command("bash", "-euo", "pipefail", "-c", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n"+commands)
	command.Dir = dir
	command.Env = append(os.Environ(), "KUBECONFIG="+akri.Cluster.Kubeconfig(), "PATH="+akri.Bin()+":"+os.Getenv("PATH"),
		"AKRI_CLUSTER_DIR="+filepath.Dir(akri.Cluster.Kubeconfig())) // for bin/akri-cluster
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s", output)
	return string(output)
}
