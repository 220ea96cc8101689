package decode

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Arguments of the processes that attack, with and without the sandbox.
const (
	sandboxed = "sandboxed"
	free      = "free"
)

func TestMain(m *testing.M) {
	if len(os.Args) == 5 && (os.Args[1] == sandboxed || os.Args[1] == free) {
		attack(os.Args[1] == sandboxed, os.Args[2], os.Args[3], os.Args[4])
		return
	}
	os.Exit(m.Run())
}

// attacks are what code in the decoder could try with the file of a credential and the process of
// the broker. Each must fail.
var attacks = map[string]func(file string, broker int) error{
	"read a file":   func(file string, _ int) error { _, err := os.ReadFile(file); return err },
	"write a file":  func(file string, _ int) error { return os.WriteFile(file, nil, 0o600) },
	"remove a file": func(file string, _ int) error { return os.Remove(file) },
	"read the environment of the broker": func(_ string, broker int) error {
		_, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", broker))
		return err
	},
	"connect":                    func(string, int) error { _, err := net.Dial("tcp", "127.0.0.1:1"); return denied(err) },
	"listen":                     func(string, int) error { _, err := net.Listen("tcp", "127.0.0.1:0"); return err },
	"start a program":            func(string, int) error { return exec.Command("/bin/true").Run() },
	"trace the broker":           func(_ string, broker int) error { return syscall.PtraceAttach(broker) },
	"end the broker":             func(_ string, broker int) error { return syscall.Kill(broker, syscall.SIGKILL) },
	"end a thread of the broker": func(_ string, broker int) error { return unix.Tgkill(broker, broker, unix.SIGKILL) },
	"read the memory of the broker": func(_ string, broker int) error {
		local, remote := make([]byte, 1), unix.RemoteIovec{Base: 0x400000, Len: 1}
		_, err := unix.ProcessVMReadv(broker, []unix.Iovec{{Base: &local[0], Len: 1}}, []unix.RemoteIovec{remote}, 0)
		return err
	},
	"make a namespace": func(string, int) error { return unix.Unshare(unix.CLONE_NEWUSER) },
	"allow more memory": func(string, int) error {
		return unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
	},
}

// denied returns nil unless the error is that of the filter. Another error means that the system
// call was executed.
func denied(err error) error {
	if err != nil && strings.Contains(err.Error(), unix.EPERM.Error()) {
		return err
	}
	return nil
}

// attack prints the error of an attack, or "succeeded".
func attack(inSandbox bool, name, file, broker string) {
	number, err := strconv.Atoi(broker)
	if err != nil {
		panic(err)
	}
	if inSandbox {
		if err := sandbox(); err != nil {
			panic(err)
		}
	}
	if err := denied(attacks[name](file, number)); err != nil {
		fmt.Print(err)
		return
	}
	fmt.Print("succeeded")
}

// TestSandbox attacks from a process with the sandbox of the decoder and the rights of the broker.
// The same attacks without the sandbox show that they are ones. Each has a file and a broker of its
// own, because the kernel also denies, for example, to trace a process that has ended.
func TestSandbox(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("without the sandbox, some attacks need root")
	}
	for name := range attacks {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Contains(t, attackFrom(t, sandboxed, name), unix.EPERM.Error())
			require.Equal(t, "succeeded", attackFrom(t, free, name))
		})
	}
}

// attackFrom returns what a process prints that attacks a file and a broker.
func attackFrom(t *testing.T, kind, name string) string {
	t.Helper()
	file := t.TempDir() + "/password"
	require.NoError(t, os.WriteFile(file, []byte("secret"), 0o600))
	broker := exec.CommandContext(t.Context(), "sleep", "60")
	require.NoError(t, broker.Start())
	defer func() {
		_ = broker.Process.Kill()
		_ = broker.Wait()
	}()
	executable, err := os.Executable()
	require.NoError(t, err)

	attacker := exec.CommandContext(t.Context(), executable, kind, name, file, strconv.Itoa(broker.Process.Pid))
	attacker.Env = append(os.Environ(), "GORACE=atexit_sleep_ms=0") // the race detector's pause is 1 s
	output, err := attacker.CombinedOutput()
	require.NoError(t, err, string(output))

	if kind == sandboxed {
		content, err := os.ReadFile(file)
		require.NoError(t, err)
		require.Equal(t, "secret", string(content))
	}
	return string(output)
}
