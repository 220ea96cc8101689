package binaries_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/integration/cluster/binaries"
)

// TestEnsureBuildsOnChange uses a copy of the project's smallest module and a temporary cache.
func TestEnsureBuildsOnChange(t *testing.T) {
	source, err := filepath.Abs("../../../tools/cluster")
	require.NoError(t, err)
	project, cache := t.TempDir(), t.TempDir()
	t.Setenv("AKRI_CACHE", cache)
	require.NoError(t, os.CopyFS(filepath.Join(project, "tools/cluster"), os.DirFS(source)))
	require.NoError(t, os.MkdirAll(filepath.Join(project, "tools/kubernetes"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(project, "tools/kubernetes/go.mod"), []byte("module x\n"), 0o644))
	t.Chdir(filepath.Join(project, "tools"))

	require.Equal(t, []string{"1 of 1: compiling pause"}, ensure(t, "pause"), "first build")
	require.Empty(t, ensure(t, "pause"), "no change")
	path, err := binaries.Path("pause")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(cache, "bin", "pause"), path)

	main := filepath.Join(project, "tools/cluster/pause/main.go")
	content, err := os.ReadFile(main)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(main, append(content, "\n// changed\n"...), 0o644))
	require.Equal(t, []string{"1 of 1: compiling pause, relay"}, ensure(t, "pause", "relay"), "changed source")
	_, err = binaries.Path("relay")
	require.NoError(t, err)

	require.NoError(t, os.WriteFile(main, []byte("package main\n\nfunc main() { oops }\n"), 0o644))
	_, err = binaries.Ensure(t.Context(), nil, "pause")
	require.ErrorContains(t, err, "undefined: oops")
	require.NoError(t, exec.Command("test", "-x", path).Run(), "the previous binary stays")
}

func ensure(t *testing.T, names ...string) []string {
	t.Helper()
	var steps []string
	_, err := binaries.Ensure(t.Context(), func(step string) {
		if !strings.Contains(step, " packages after ") {
			steps = append(steps, step)
		}
	}, names...)
	require.NoError(t, err)
	return steps
}

func TestUnknownBinaryIsAnError(t *testing.T) {
	_, err := binaries.Ensure(t.Context(), nil, "kublet")
	require.ErrorContains(t, err, `unknown binary "kublet"`)
	t.Setenv("AKRI_CACHE", t.TempDir())
	_, err = binaries.Path("helm")
	require.ErrorContains(t, err, "akri-cluster binaries")
}
