package demo_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/integration/cluster"
	"akri.sh/integration/cluster/binaries"
	"akri.sh/integration/demo"
)

// TestKilledDemo kills demos at random moments, AKRI_DEMO times. The demo after them succeeds, also
// if its checkout changes while it builds. It needs root and the programs of `make demo`.
func TestKilledDemo(t *testing.T) {
	kills, err := strconv.Atoi(os.Getenv("AKRI_DEMO"))
	if err != nil {
		t.Skip("AKRI_DEMO is not set")
	}
	root, err := binaries.Root()
	require.NoError(t, err)
	dir := filepath.Join(os.TempDir(), "akri-demo-test")
	t.Cleanup(func() {
		running, err := cluster.Ensure(context.WithoutCancel(t.Context()), cluster.Config{Dir: dir, Progress: func(string) {}})
		require.NoError(t, err)
		require.NoError(t, running.Down(context.WithoutCancel(t.Context())))
	})
	output := filepath.Join(t.TempDir(), "output") // a pipe would end only with the helm of a killed demo
	checkout := root
	run := func(ctx context.Context) error {
		command := exec.CommandContext(ctx, filepath.Join(root, "bin", "akri-demo"), "--dir", dir)
		command.Dir = checkout
		command.Env = append(os.Environ(), "PATH="+filepath.Join(root, "bin")+":"+os.Getenv("PATH"))
		file, err := os.Create(output)
		require.NoError(t, err)
		defer file.Close()
		command.Stdout, command.Stderr = file, file
		return command.Run()
	}
	printed := func() string {
		text, _ := os.ReadFile(output) // it exists when a demo has started
		return string(text)
	}

	for range kills {
		after := time.Duration(rand.IntN(60_000)) * time.Millisecond
		ctx, cancel := context.WithTimeout(t.Context(), after) // which kills the process
		err := run(ctx)
		cancel()
		var exit *exec.ExitError
		require.True(t, err == nil || errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled(), "%s", printed())
		t.Logf("killed after %s: %s", after, lastLine(printed()))
	}

	checkout, output = copyCheckout(t, root), filepath.Join(t.TempDir(), "output")
	ended := make(chan struct{})
	removed := make(chan error, 1)
	go func() { removed <- removeSources(checkout, ended, printed) }()
	err = run(t.Context())
	close(ended)
	require.NoError(t, err, "%s", printed())
	require.NoError(t, <-removed)
}

// copyCheckout returns a copy of the source tree.
func copyCheckout(t *testing.T, root string) string {
	t.Helper()
	checkout := t.TempDir()
	copied := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", `tar --exclude=./bin --exclude=./.git -cf - . | tar -xf - -C "$0"`, checkout)
	copied.Dir = root
	output, err := copied.CombinedOutput()
	require.NoError(t, err, "%s", output)
	return checkout
}

// removeSources removes what a demo installs when it begins to build. A demo that reads the
// checkout after that fails.
func removeSources(checkout string, ended <-chan struct{}, printed func() string) error {
	for !strings.Contains(printed(), "Step 2 of 5") {
		select {
		case <-ended:
			return errors.New("the demo has ended before it builds")
		case <-time.After(10 * time.Millisecond):
		}
	}
	samples, err := filepath.Glob(filepath.Join(checkout, "deploy", "samples", "*.yaml"))
	errs := []error{err, os.RemoveAll(filepath.Join(checkout, "charts", "akri"))}
	for _, sample := range samples {
		errs = append(errs, os.Remove(sample))
	}
	return errors.Join(errs...)
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// TestSources checks that a demo reads copies of the charts and the samples, because the checkout
// can change while it builds.
func TestSources(t *testing.T) {
	root, err := binaries.Root()
	require.NoError(t, err)
	copied, remove, err := demo.CopySources()
	require.NoError(t, err)
	defer remove()
	require.NotEqual(t, root, copied)
	for _, file := range []string{"charts/akri/Chart.yaml", "charts/akri/charts/registrar/templates/daemonset.yaml", "deploy/samples/udev-zram.yaml"} {
		want, err := os.ReadFile(filepath.Join(root, file))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(copied, file))
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
	}
}
