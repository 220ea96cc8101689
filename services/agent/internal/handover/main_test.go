// Package handover_test runs the services of a node in processes of their own, and changes how Pods
// get devices while Pods start and end and the processes restart.
package handover_test

import (
	"bytes"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"akri.sh/libs/service"
	"akri.sh/services/agent"
	allocator "akri.sh/services/config-plugin-allocator"
	devicepluginhost "akri.sh/services/device-plugin-host"
	drakubeletplugin "akri.sh/services/dra-kubelet-plugin"
	"akri.sh/services/dra-kubelet-plugin/relay"
)

// asService names the service that the test binary is.
const asService = "BE_THE_SERVICE"

func TestMain(m *testing.M) {
	switch name := os.Getenv(asService); name {
	case "agent":
		service.Main(name, "Runs.", agent.New)
	case "config-plugin-allocator":
		service.Main(name, "Chooses.", allocator.New)
	case "device-plugin-host":
		service.Main(name, "Advertises.", devicepluginhost.New)
	case "dra-kubelet-plugin":
		service.Main(name, "Prepares.", drakubeletplugin.New)
	case relay.Name:
		service.Main(name, relay.Description, relay.New)
	default:
		goleak.VerifyTestMain(m)
	}
}

// process is a service in a process of its own.
type process struct {
	t       *testing.T
	name    string
	flags   []string
	command *exec.Cmd
	output  output
}

// output is what a process writes.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (o *output) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(text)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// startProcess starts the service until the end of the test.
func startProcess(t *testing.T, name string, flags ...string) *process {
	t.Helper()
	p := &process{t: t, name: name, flags: append(flags, "--admin-address=", "--log-format=text")}
	p.start()
	t.Cleanup(func() {
		p.end(syscall.SIGKILL)
		require.NotContains(t, p.output.String(), "DATA RACE", name)
		require.NotContains(t, p.output.String(), "panic: ", name)
		if t.Failed() {
			t.Logf("%s:\n%s", name, p.output.String())
		}
	})
	return p
}

func (p *process) start() {
	p.t.Helper()
	p.command = exec.Command(os.Args[0], p.flags...)
	p.command.Env = append(os.Environ(), asService+"="+p.name)
	p.command.Stdout, p.command.Stderr = &p.output, &p.output
	require.NoError(p.t, p.command.Start())
}

// end ends the process with a signal. A process that has handled SIGTERM exits with code 0.
func (p *process) end(signal syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.command.Process.Signal(signal))
	_ = p.command.Wait()
	require.LessOrEqual(p.t, p.command.ProcessState.ExitCode(), 0, p.name) // -1: by the signal
}
