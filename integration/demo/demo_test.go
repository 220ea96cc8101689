package demo_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/integration/cluster/binaries"
	"akri.sh/integration/demo"
)

// TestImages compares the list of images with those of the charts and samples of the demo.
func TestImages(t *testing.T) {
	helm, err := binaries.Path("helm")
	require.NoError(t, err)
	root, err := binaries.Root()
	require.NoError(t, err)
	text, err := exec.CommandContext(t.Context(), helm, "template", "akri", filepath.Join(root, "charts", "akri")).Output()
	require.NoError(t, err)
	for _, sample := range []string{"debug-echo", "udev-zram", "udev-null"} {
		manifest, err := os.ReadFile(filepath.Join(root, "deploy", "samples", sample+".yaml"))
		require.NoError(t, err)
		text = append(text, manifest...)
	}

	var used []string
	for _, match := range regexp.MustCompile(`image: "?ghcr\.io/akri-mesh/([a-z-]+):`).FindAllSubmatch(text, -1) {
		used = append(used, string(match[1]))
	}
	slices.Sort(used)
	require.Equal(t, slices.Compact(used), demo.Images)
}

// TestPrograms checks that a demo builds no programs that only tests use, such as otelcol: it took
// minutes.
func TestPrograms(t *testing.T) {
	require.ElementsMatch(t, []string{
		"pause", "relay", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl", "etcd",
		"containerd", "containerd-shim-runc-v2", "ctr", "coredns", "helm",
	}, demo.Programs())
}

// TestCommands checks that `make demo` builds the commands that the documents name after it.
func TestCommands(t *testing.T) {
	root, err := binaries.Root()
	require.NoError(t, err)
	bin := t.TempDir()
	output, err := exec.CommandContext(t.Context(), "make", "--dry-run", "--directory="+root, "demo", "BIN="+bin).CombinedOutput()
	require.NoError(t, err, "%s", output)
	for _, build := range []string{`cd tools/akri-image && .*-o ` + bin + `/ \.`, `-o ` + bin + `/ \./cmd/akri-cluster`, `-o ` + bin + `/ \./cmd/akri-demo`} {
		require.Regexp(t, `(?m)`+build+`$`, string(output))
	}
}

// TestFailedBuild checks that a demo whose build fails ends with the error.
func TestFailedBuild(t *testing.T) {
	t.Setenv("AKRI_CACHE", t.TempDir())
	t.Setenv("PATH", t.TempDir())
	var output strings.Builder
	require.ErrorContains(t, demo.Run(t.Context(), demo.Options{Out: &output}), "build images with akri-image")
}

// TestLock checks that a command of a demo that was killed keeps its lock.
func TestLock(t *testing.T) {
	cache := t.TempDir()
	lock, err := demo.Lock(t.Context(), cache)
	require.NoError(t, err)
	helm := exec.CommandContext(t.Context(), "cat")
	input, err := helm.StdinPipe()
	require.NoError(t, err)
	helm.ExtraFiles = []*os.File{lock}
	require.NoError(t, helm.Start())
	require.NoError(t, lock.Close())

	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = demo.Lock(ended, cache)
	require.ErrorIs(t, err, context.Canceled)

	require.NoError(t, input.Close())
	require.NoError(t, helm.Wait())
	next, err := demo.Lock(t.Context(), cache)
	require.NoError(t, err)
	require.NoError(t, next.Close())
}
