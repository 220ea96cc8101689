package binaries

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLines counts the lines of a command, as for the progress of a build.
func TestLines(t *testing.T) {
	var count atomic.Int64
	output := &lines{count: &count}
	command := exec.Command("printf", "first\nsecond\n")
	command.Stdout = output
	require.NoError(t, command.Run())
	require.EqualValues(t, 2, count.Load())
	require.Equal(t, "first\nsecond\n", output.text.String())
}

// TestGroup checks that programs of one module are one build, which links them at the same time.
func TestGroup(t *testing.T) {
	selected, err := programs(append(OfCluster(""), "helm", "kubelet-arm64", "kube-proxy-arm64"))
	require.NoError(t, err)
	var all []pending
	for _, p := range selected {
		all = append(all, pending{Program: p})
	}
	var builds []string
	for _, b := range group(all) {
		builds = append(builds, b.names())
	}
	require.Equal(t, []string{
		"pause, relay",
		"kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy, kubectl, etcd",
		"containerd, containerd-shim-runc-v2, ctr",
		"coredns",
		"helm",
		"kubelet-arm64, kube-proxy-arm64",
	}, builds)
}

// fakeGo lists three packages, compiles two, and ends when the file "continue" exists.
const fakeGo = `#!/bin/sh
case $1 in
list) printf 'a\nb\nc\n';;
build) printf 'a\nb\n'; while ! [ -e "$CONTINUE" ]; do sleep 0.01; done;;
esac
`

// TestProgress checks that a build shows what remains while it compiles.
func TestProgress(t *testing.T) {
	before := compileInterval
	t.Cleanup(func() { compileInterval = before })
	compileInterval = 10 * time.Millisecond
	bin, dir := t.TempDir(), t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(bin, "go"), []byte(fakeGo), 0o755))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	t.Setenv("CONTINUE", filepath.Join(bin, "continue"))

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	seen := false
	b := build{{Program: Program{Name: "pause", Package: "./pause"}}}
	err := b.run(ctx, dir, dir, func(state string) {
		if strings.HasPrefix(state, ": 2 of at most 3 packages after ") && !seen {
			seen = true
			partial, err := filepath.Glob(filepath.Join(dir, ".partial-*"))
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(filepath.Join(partial[0], "pause"), nil, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(bin, "continue"), nil, 0o644))
		}
	})
	require.NoError(t, err)
	require.True(t, seen)
}
