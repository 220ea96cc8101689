// Package sdk_test builds a Discovery Handler outside of the workspace, as a user of the SDK does.
package sdk_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/mod/modfile"
	"golang.org/x/mod/module"
	"golang.org/x/mod/zip"
)

// published are the modules that `go get akri.sh/libs/handler` downloads, by directory.
var published = []string{"proto", "libs", "libs/handler"}

func TestHandlerBuildsOutsideTheWorkspace(t *testing.T) {
	root, err := filepath.Abs("../..")
	require.NoError(t, err)
	proxy, sdk := t.TempDir(), requiredVersion(t, root)
	for _, directory := range published {
		publish(t, proxy, filepath.Join(root, directory), sdk)
	}
	work := t.TempDir()
	source, err := os.ReadFile("testdata/handler-lamp/main.go")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(work, "main.go"), source, 0o600))

	// An own module cache: the shared one would keep the SDK of an earlier run. It serves the other
	// modules.
	cache := t.TempDir()
	proxies := "file://" + proxy + ",file://" + goEnv(t, "GOMODCACHE") + "/cache/download," + goEnv(t, "GOPROXY")
	run := func(arguments ...string) string {
		command := exec.CommandContext(t.Context(), "go", arguments...)
		command.Dir = work
		command.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-modcacherw", "GONOSUMDB=akri.sh", "GOMODCACHE="+cache, "GOPROXY="+proxies)
		output, err := command.CombinedOutput()
		require.NoError(t, err, "go %s:\n%s", strings.Join(arguments, " "), output)
		return string(output)
	}
	run("mod", "init", "example.com/handler-lamp")
	run("get", "akri.sh/libs/handler@"+sdk)
	run("mod", "tidy")
	run("build", "-o", "handler-lamp", ".")
	require.Contains(t, run("list", "-m", "all"), "akri.sh/libs/handler "+sdk)
	require.NotContains(t, run("list", "-deps", "."), "k8s.io/", "the SDK must not depend on Kubernetes")

	help, err := exec.CommandContext(t.Context(), filepath.Join(work, "handler-lamp"), "--help").CombinedOutput()
	require.NoError(t, err)
	require.Contains(t, string(help), "--discovery-handlers-directory")
}

// requiredVersion returns the version of akri.sh/libs that the SDK requires. All modules are
// released with it.
func requiredVersion(t *testing.T, root string) string {
	t.Helper()
	file := filepath.Join(root, "libs/handler/go.mod")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	parsed, err := modfile.Parse(file, text, nil)
	require.NoError(t, err)
	for _, required := range parsed.Require {
		if required.Mod.Path == "akri.sh/libs" {
			return required.Mod.Version
		}
	}
	require.FailNow(t, "libs/handler does not require akri.sh/libs")
	return ""
}

// publish adds a module to a module proxy in the file system, in the layout of the GOPROXY
// protocol.
func publish(t *testing.T, proxy, directory, version string) {
	t.Helper()
	gomod, err := os.ReadFile(filepath.Join(directory, "go.mod"))
	require.NoError(t, err)
	path := modfile.ModulePath(gomod)
	versions := filepath.Join(proxy, path, "@v")
	require.NoError(t, os.MkdirAll(versions, 0o700))
	archive, err := os.Create(filepath.Join(versions, version+".zip"))
	require.NoError(t, err)
	require.NoError(t, zip.CreateFromDir(archive, module.Version{Path: path, Version: version}, directory))
	require.NoError(t, archive.Close())
	info, err := json.Marshal(map[string]string{"Version": version})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(versions, version+".info"), info, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(versions, version+".mod"), gomod, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(versions, "list"), fmt.Appendln(nil, version), 0o600))
}

func goEnv(t *testing.T, name string) string {
	t.Helper()
	value, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(value))
}
