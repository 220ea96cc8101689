package sharedlib_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/tools/akri-image/internal/sharedlib"
)

const source = "../../testdata/repository/"

func TestClosureMatchesDynamicLoader(t *testing.T) {
	binary := compile(t, source+"udev", "CGO_ENABLED=1")
	libraries, err := sharedlib.Closure(binary)
	require.NoError(t, err)
	var paths, names []string
	for _, library := range libraries {
		paths = append(paths, library.Path)
		names = append(names, filepath.Base(library.Path))
		info, err := os.Lstat(library.Source)
		require.NoError(t, err)
		require.True(t, info.Mode().IsRegular(), "%s is not a regular file", library.Source)
	}
	require.True(t, slices.IsSorted(paths))
	require.ElementsMatch(t, loaded(t, binary), names)
	require.Contains(t, names, "libudev.so.1")
}

func TestStaticBinaryHasNoLibraries(t *testing.T) {
	libraries, err := sharedlib.Closure(compile(t, source+"hello", "CGO_ENABLED=0"))
	require.NoError(t, err)
	require.Empty(t, libraries)
}

func TestClosureOfOtherFileIsAnError(t *testing.T) {
	_, err := sharedlib.Closure("sharedlib_test.go")
	require.ErrorContains(t, err, "read binary")
}

// loaded returns the libraries that the dynamic loader loads.
func loaded(t *testing.T, binary string) []string {
	t.Helper()
	text, err := exec.Command("ldd", binary).Output()
	require.NoError(t, err)
	var names []string
	for _, match := range regexp.MustCompile(`(?m)^\s+(\S+) `).FindAllSubmatch(text, -1) {
		if name := string(match[1]); name != "linux-vdso.so.1" {
			names = append(names, filepath.Base(name))
		}
	}
	return names
}

func compile(t *testing.T, dir string, env ...string) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "binary")
	cmd := exec.Command("go", "build", "-o", binary, ".")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), append(env, "GOWORK=off")...)
	text, err := cmd.CombinedOutput()
	require.NoError(t, err, string(text))
	return binary
}
