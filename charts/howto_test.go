package charts_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	akriv0 "akri.sh/libs/apis/akri/v0"
	"akri.sh/libs/kube/kubetest"
)

// TestGenerateAConfiguration runs the commands of the page with its values.
func TestGenerateAConfiguration(t *testing.T) {
	page := read(t, "docs/how-to/generate-a-configuration.md")
	directory := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(directory, "cameras.yaml"), []byte(codeBlocks(page, "yaml")[0]), 0o600))
	require.NoError(t, os.Symlink(absolute(t, "."), filepath.Join(directory, "charts")))

	output := bash(t, directory, strings.Join(codeBlocks(page, "console"), "\n"))
	require.Contains(t, output, "\nfront-camera ")
	require.Contains(t, output, "\nother-cameras ")
	require.Contains(t, output, "configuration.akri.sh/front-camera configured (server dry run)")
	require.Contains(t, output, "\n  name: akri-udev\n")
	require.Contains(t, output, "\n  name: akri-custom-discovery-daemonset\n")
	require.Empty(t, strings.TrimSpace(bash(t, directory, "kubectl get akric --namespace default --output name")))
}

// TestPredictAName compares the command of the page with the code.
func TestPredictAName(t *testing.T) {
	page := read(t, "docs/how-to/predict-a-name.md")
	function := codeBlocks(page, "sh")[0]
	examples := strings.Split(strings.TrimSpace(bash(t, t.TempDir(), function+codeBlocks(page, "console")[0])), "\n")
	require.Equal(t, "debug-echo-8120fe", examples[0])

	for _, c := range []struct{ configuration, id, node string }{
		{"debug-echo", "foo0", ""},
		{"opcua", "opc.tcp://10.0.0.1:4840/", ""},
		{"usb-camera", "/devices/pci0000:00/0000:00:14.0/usb1/1-2/1-2:1.0/video4linux/video0", "node-a"},
		{"a.b.c", "%s %d -n \\ 'ü'", "node.example.com"},
	} {
		output := bash(t, t.TempDir(), function+`name "$1" "$2" "$3"`, c.configuration, c.id, c.node)
		expected := akriv0.InstanceName(c.configuration, akriv0.Digest(c.id, c.node, c.node == ""))
		require.Equal(t, expected+"\n", output)
	}
}

// TestObjectsOfThePages lets the API server accept what the pages show. Fields of a container
// become a Pod.
func TestObjectsOfThePages(t *testing.T) {
	for _, page := range []string{"write-a-broker.md", "request-a-device.md"} {
		blocks := codeBlocks(read(t, "docs/how-to/"+page), "yaml")
		require.NotEmpty(t, blocks, page)
		for _, block := range blocks {
			if !strings.Contains(block, "apiVersion:") {
				indented := strings.ReplaceAll(strings.TrimSpace(block), "\n", "\n      ")
				block = "apiVersion: v1\nkind: Pod\nmetadata: {name: fragment}\nspec:\n  containers:\n    - name: container\n      image: none\n      " + indented
			}
			file := filepath.Join(t.TempDir(), "objects.yaml")
			require.NoError(t, os.WriteFile(file, []byte(block), 0o600))
			output := bash(t, t.TempDir(), "kubectl apply --namespace default --dry-run=server --validate=strict -f "+file)
			require.Contains(t, output, "created (server dry run)", page)
		}
	}
}

// codeBlocks returns the blocks of a page in a language.
func codeBlocks(page, language string) []string {
	return matches("(?ms)^```"+language+"\n(.*?)^```$", page)
}

// bash runs commands with helm, kubectl and the API server of the tests, and returns their output.
func bash(t *testing.T, directory, commands string, arguments ...string) string {
	t.Helper()
	return bashOn(t, server, directory, commands, arguments...)
}

// bashOn is bash with another API server.
func bashOn(t *testing.T, server *kubetest.Server, directory, commands string, arguments ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), commandTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, "bash", append([]string{"-euo", "pipefail", "-c", "set +u\n" + commands, "bash"}, arguments...)...)
	command.Dir = directory
	home := t.TempDir()
	command.Env = append(environOfCommands(), "PATH="+filepath.Dir(binary(t, "helm"))+":"+os.Getenv("PATH"), "KUBECONFIG="+kubeconfigOf(t, server), "HOME="+home)
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s\n%s", commands, output)
	return string(output)
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	absolute, err := filepath.Abs(path)
	require.NoError(t, err)
	return absolute
}
