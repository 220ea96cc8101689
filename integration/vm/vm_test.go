package vm_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/integration/vm"
)

// variable selects these tests, which emulate a processor and take minutes.
const variable = "AKRI_VM"

// TestMain prints the results as docs/hardware.md has them.
func TestMain(m *testing.M) {
	code := m.Run()
	results.print(os.Stdout)
	os.Exit(code)
}

// image returns the image of guests, and skips the test unless `make test-vm` runs it.
func image(t *testing.T, machine vm.Machine) *vm.Image {
	t.Helper()
	if os.Getenv(variable) == "" {
		t.Skip(variable + " is not set; make test-vm sets it")
	}
	started := time.Now()
	built, err := vm.Ensure(t.Context(), machine, func(step string) { fmt.Fprintln(os.Stderr, step) })
	require.NoError(t, err)
	t.Logf("the image is ready after %s", time.Since(started).Round(time.Millisecond))
	return built
}

// start starts a guest until the test ends. A failed test logs what the guest logged.
func start(t *testing.T, image *vm.Image) *vm.Guest {
	t.Helper()
	started := time.Now()
	guest, err := image.Start(t.Context())
	require.NoError(t, err)
	t.Logf("the guest is ready after %s", time.Since(started).Round(time.Millisecond))
	t.Cleanup(func() {
		defer guest.Close()
		if !t.Failed() {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 30*time.Second)
		defer cancel()
		logs, err := guest.Logs(ctx)
		t.Logf("logs of the guest (%v):\n%s\nconsole:\n%s", err, logs, guest.Console())
	})
	return guest
}

func run(t *testing.T, guest *vm.Guest, script string) string {
	t.Helper()
	output, err := guest.Run(t.Context(), script)
	require.NoError(t, err)
	return output
}

func TestGuest(t *testing.T) {
	for _, machine := range []vm.Machine{vm.Plain, vm.Arm64Worker} {
		t.Run(machine.Architecture, func(t *testing.T) { testGuest(t, machine) })
	}
}

func testGuest(t *testing.T, machine vm.Machine) {
	guest := start(t, image(t, machine))
	require.Equal(t, "running", run(t, guest, "systemctl is-system-running"))
	require.Equal(t, machine.Architecture, run(t, guest, "dpkg --print-architecture"))
	require.NoError(t, guest.WriteFile(t.Context(), "/tmp/file", []byte("content")))
	require.Equal(t, "content", run(t, guest, "cat /tmp/file"))
	_, err := guest.Run(t.Context(), "echo reason >&2; exit 3")
	require.ErrorContains(t, err, "exit code 3, signal 0: reason")

	seconds := run(t, guest, "date +%s")
	require.InDelta(t, time.Now().Unix(), parse(t, seconds), 30, "the clock of a guest from a snapshot")
}

// A killed test leaves no QEMU behind. The test runs itself again as the process that is killed.
func TestKilledTest(t *testing.T) {
	const child = "AKRI_VM_KILLED"
	built := image(t, vm.Plain)
	if os.Getenv(child) != "" {
		guest, err := built.Start(t.Context())
		require.NoError(t, err)
		fmt.Println("QEMU", guest.PID())
		select {}
	}
	command := exec.Command("/proc/self/exe", "-test.run", "^TestKilledTest$")
	command.Env = append(os.Environ(), child+"=1")
	output, err := command.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, command.Start())
	var pid int
	_, err = fmt.Fscanf(output, "QEMU %d", &pid)
	require.NoError(t, err)
	require.DirExists(t, process(pid))

	require.NoError(t, command.Process.Kill())
	_ = command.Wait() // killed
	require.Eventually(t, func() bool {
		_, err := os.Stat(process(pid))
		return os.IsNotExist(err)
	}, 10*time.Second, 10*time.Millisecond)
}

func process(pid int) string { return fmt.Sprintf("/proc/%d", pid) }

func parse(t *testing.T, number string) (value int64) {
	t.Helper()
	_, err := fmt.Sscan(strings.TrimSpace(number), &value)
	require.NoError(t, err)
	return value
}
