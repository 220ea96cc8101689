package instancewriter_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"akri.sh/libs/admin"
	"akri.sh/libs/kube"
	"akri.sh/libs/listentest"
	"akri.sh/libs/rpc"
	"akri.sh/libs/service"
	instancev1 "akri.sh/proto/akri/instance/v1"
	instancewriter "akri.sh/services/instance-writer"
)

// Variables of the environment that make the test binary an instance-writer.
const (
	addressVariable    = "AKRI_TEST_ADDRESS"
	kubeconfigVariable = "AKRI_TEST_KUBECONFIG"
)

// process is an instance-writer in its own process, which can be killed and restarted. It is the
// test binary, because it serves callers without identity.
type process struct {
	testing.TB
	kubeconfig, address string
	client              instancev1.InstanceServiceClient

	mu      sync.Mutex
	command *exec.Cmd
}

// processes starts replicas that reach the API server at the host.
func processes(t testing.TB, host string, count int) []*process {
	t.Helper()
	var all []*process
	for range count {
		p := &process{TB: t, kubeconfig: kubeconfig(t, host), address: listentest.Address(t)}
		conn, err := rpc.Dial(p.address, prometheus.NewRegistry())
		require.NoError(t, err)
		p.client = instancev1.NewInstanceServiceClient(conn)
		t.Cleanup(func() { p.kill(); require.NoError(t, conn.Close()) })
		p.start()
		all = append(all, p)
	}
	return all
}

// runProcess serves until SIGTERM and returns the exit code.
func runProcess(address, kubeconfig string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	config := instancewriter.Config{
		Flags: kube.Flags{Kubeconfig: kubeconfig}, Address: address, Namespace: namespace,
		NodeGrace: 5 * time.Minute, ReportGrace: time.Minute, ShutdownDelay: 2 * time.Second,
	}
	env := service.Env{Log: zap.Must(zap.NewProduction(zap.IncreaseLevel(zap.ErrorLevel))), Metrics: prometheus.NewRegistry(), Health: &admin.Health{}}
	writer, err := instancewriter.NewWithoutIdentities(config, env)
	if err == nil {
		err = writer.Run(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// build returns the binary of instance-writer.
func build(t testing.TB) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "instance-writer")
	output, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./cmd/instance-writer").CombinedOutput()
	require.NoError(t, err, "%s", output)
	return binary
}

func (p *process) start() {
	command := exec.CommandContext(p.Context(), os.Args[0])
	command.Env = append(os.Environ(), addressVariable+"="+p.address, kubeconfigVariable+"="+p.kubeconfig)
	command.Stderr = os.Stderr
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	require.NoError(p, command.Start())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.command = command
}

// kill ends the process with SIGKILL.
func (p *process) kill() { p.end(syscall.SIGKILL) }

// stop ends the process with SIGTERM. Running calls finish before.
func (p *process) stop() { p.end(syscall.SIGTERM) }

func (p *process) end(signal syscall.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.command.Process.Signal(signal)
	_ = p.command.Wait()
}

// kubeconfig writes a kubeconfig file for the test API server at the host.
func kubeconfig(t testing.TB, host string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: host, InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: api.Config().BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, file))
	return file
}
