package instancewriter_test

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"akri.sh/libs/rpc"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// process is an instance-writer that can be killed as a machine kills it, and started again at its
// address.
type process struct {
	testing.TB
	program, kubeconfig, address string
	client                       instancev1.InstanceServiceClient

	mu      sync.Mutex
	command *exec.Cmd
}

// processes starts so many replicas, which reach the API server at an address.
func processes(t testing.TB, host string, count int) []*process {
	t.Helper()
	program := filepath.Join(t.TempDir(), "instance-writer")
	output, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./cmd/instance-writer").CombinedOutput()
	require.NoError(t, err, "%s", output)
	var all []*process
	for range count {
		p := &process{TB: t, program: program, kubeconfig: kubeconfigOf(t, host), address: freeAddress(t)}
		conn, err := rpc.Dial(p.address, prometheus.NewRegistry())
		require.NoError(t, err)
		p.client = instancev1.NewInstanceServiceClient(conn)
		t.Cleanup(func() { p.kill(); require.NoError(t, conn.Close()) })
		p.start()
		all = append(all, p)
	}
	return all
}

func freeAddress(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a test ends when it ends
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().String()
}

func (p *process) start() {
	command := exec.CommandContext(p.Context(), p.program, "--address", p.address, "--admin-address=", "--kubeconfig", p.kubeconfig, "--log-level=error")
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(p, command.Start())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.command = command
}

// kill ends the process at once, in the middle of whatever it does.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.command.Process.Kill()
	_ = p.command.Wait()
}
