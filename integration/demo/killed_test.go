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

// TestKilledDemo kills demos at random moments, AKRI_DEMO times. The demo after them succeeds. It
// needs root and the programs of `make demo`.
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
	run := func(ctx context.Context) error {
		command := exec.CommandContext(ctx, filepath.Join(root, "bin", "akri-demo"), "--dir", dir)
		command.Dir = root
		command.Env = append(os.Environ(), "PATH="+filepath.Join(root, "bin")+":"+os.Getenv("PATH"))
		file, err := os.Create(output)
		require.NoError(t, err)
		defer file.Close()
		command.Stdout, command.Stderr = file, file
		return command.Run()
	}
	printed := func() string {
		text, err := os.ReadFile(output)
		require.NoError(t, err)
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
	require.NoError(t, run(t.Context()), "%s", printed())
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
