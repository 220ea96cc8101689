package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"akri.sh/libs/kubetest"
	"akri.sh/libs/rpc"
	instancev1 "akri.sh/proto/akri/instance/v1"
)

// writer is a running instance-writer.
type writer struct {
	api    *kubetest.Server
	dir    string
	cmd    *exec.Cmd
	conn   *grpc.ClientConn
	client instancev1.InstanceServiceClient
}

func startWriter(ctx context.Context, api *kubetest.Server, root string) (w *writer, err error) {
	w = &writer{api: api}
	if w.dir, err = os.MkdirTemp("", "akri-bench-"); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	program := filepath.Join(w.dir, "instance-writer")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./services/instance-writer/cmd/instance-writer")
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build instance-writer: %w: %s", err, output)
	}
	kubeconfig := filepath.Join(w.dir, "kubeconfig")
	if err := writeKubeconfig(api, kubeconfig); err != nil {
		return nil, err
	}
	address, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	w.cmd = exec.CommandContext(ctx, program, "--address", address, "--admin-address=", "--kubeconfig", kubeconfig, "--log-level=error")
	w.cmd.Stderr = os.Stderr
	w.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := w.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start instance-writer: %w", err)
	}
	if w.conn, err = rpc.Dial(address, prometheus.NewRegistry()); err != nil {
		return nil, err
	}
	w.client = instancev1.NewInstanceServiceClient(w.conn)
	return w, nil
}

func (w *writer) stop() error {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait() // it says that it was killed
	return errors.Join(w.conn.Close(), os.RemoveAll(w.dir))
}

func freeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

func writeKubeconfig(api *kubetest.Server, file string) error {
	access := api.Config()
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: access.Host, InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: access.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, file)
}
