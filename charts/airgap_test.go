package charts_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestImageList runs the commands of docs/how-to/air-gap.md with all handlers and a broker enabled.
// They list the images of all definitions but that of the sample handler.
func TestImageList(t *testing.T) {
	values := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(values, []byte(`
udev: {configuration: {enabled: true, discoveryDetails: {udevRules: ['KERNEL=="x"']}, brokerPod: {image: {repository: example.com/broker}}}}
`), 0o600))
	var listed []string
	for _, set := range []string{"global.resources=devicePlugin", "global.resources=dra", "global.agent.enabled=true", "console.enabled=true"} {
		for _, block := range regexp.MustCompile("(?s)```console\n(.*?)```").FindAllStringSubmatch(read(t, "docs/how-to/air-gap.md"), -1) {
			commands := strings.ReplaceAll(block[1], "--values values.yaml", "--values "+values+" "+strings.Join(append(allHandlers(t), "--set", set), " "))
			command := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", commands)
			command.Dir, command.Env = root, append(os.Environ(), "PATH="+filepath.Dir(binary(t, "helm"))+":"+os.Getenv("PATH"))
			output, err := command.Output()
			require.NoError(t, err)
			require.NotEmpty(t, output, commands)
			listed = append(listed, strings.Fields(string(output))...)
		}
	}
	want := []string{"example.com/broker:latest"}
	definitions, err := filepath.Glob(filepath.Join(root, "deploy/images/*.yaml"))
	require.NoError(t, err)
	for _, definition := range definitions {
		if name := strings.TrimSuffix(filepath.Base(definition), ".yaml"); name != "handler-http" {
			want = append(want, "ghcr.io/akri-mesh/"+name+":"+sampleTag)
		}
	}
	slices.Sort(listed)
	require.ElementsMatch(t, want, slices.Compact(listed))
}
