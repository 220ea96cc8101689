package main_test

import (
	"bytes"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/stretchr/testify/require"
)

const definitions = "testdata/repository/images"

func TestBuildWritesArchivesOnce(t *testing.T) {
	tool, out := compile(t), t.TempDir()
	build := func() string {
		return tool.run(t, "build", "--definitions", definitions, "--work", tool.work, "--out", out, "--tag", "t1")
	}
	first, second := build(), build()
	line := regexp.MustCompile(`(?m)^(\S+)\.tar +(sha256:[0-9a-f]{64}) +\d+\.\d MiB +\d+\.\ds (written|unchanged)$`)
	require.Len(t, line.FindAllString(first, -1), 2, first)
	require.Equal(t, 2, strings.Count(first, " written\n"), first)
	require.Equal(t, 2, strings.Count(second, " unchanged\n"), second)

	for _, image := range []string{"hello", "udev"} {
		ref, err := name.NewTag("ghcr.io/akri-mesh/" + image + ":t1")
		require.NoError(t, err)
		_, err = tarball.ImageFromPath(filepath.Join(out, image+".tar"), &ref)
		require.NoError(t, err)
	}
}

func TestBuildArchiveNames(t *testing.T) {
	tool, out := compile(t), t.TempDir()
	tool.run(t, "build", "--definitions", definitions, "--work", tool.work, "--out", out, "--platform", "linux/amd64,linux/arm64,linux/arm/v7", "hello")
	archives, err := filepath.Glob(out + "/*")
	require.NoError(t, err)
	require.Equal(t, []string{out + "/hello-amd64.tar", out + "/hello-arm64.tar", out + "/hello-armv7.tar"}, archives)
}

func TestPushUploadsAllPlatforms(t *testing.T) {
	server := httptest.NewServer(registry.New())
	defer server.Close()
	tool, repository := compile(t), strings.TrimPrefix(server.URL, "http://")+"/akri-mesh"
	text := tool.run(t, "push", "--definitions", definitions, "--work", tool.work, "--registry", repository, "--tag", "v1", "hello")
	ref, err := name.NewTag(repository + "/hello:v1")
	require.NoError(t, err)
	index, err := remote.Index(ref)
	require.NoError(t, err)
	digest, err := index.Digest()
	require.NoError(t, err)
	require.Contains(t, text, ref.String()+"@"+digest.String()+" 3 platforms")
}

func TestListPrintsDefinitions(t *testing.T) {
	text := compile(t).run(t, "list", "--definitions", definitions)
	require.Regexp(t, `(?m)^hello +hello +65532:65532 +\[linux/amd64 linux/arm64 linux/arm/v7\]$`, text)
}

func TestInvalidDefinitionIsAnError(t *testing.T) {
	tool, dir := compile(t), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x.yaml"), []byte("name: x\nuesr: 0:0\n"), 0o600))
	text, err := tool.command("build", "--definitions", dir).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(text), filepath.Join(dir, "x.yaml"))
	require.Contains(t, string(text), `unknown field "uesr"`)
}

// tool is the compiled command.
type tool struct {
	path string
	work string
}

func compile(t *testing.T) tool {
	t.Helper()
	compiled := tool{path: filepath.Join(t.TempDir(), "akri-image"), work: t.TempDir()}
	text, err := exec.Command("go", "build", "-o", compiled.path, ".").CombinedOutput()
	require.NoError(t, err, string(text))
	return compiled
}

func (c tool) command(args ...string) *exec.Cmd { return exec.Command(c.path, args...) }

func (c tool) run(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := c.command(args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	require.NoError(t, cmd.Run(), stderr.String())
	return stdout.String()
}
