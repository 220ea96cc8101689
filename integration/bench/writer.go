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

// writer is a running instance-writer, and the programs of a node.
type writer struct {
	api     *kubetest.Server
	dir     string
	address string
	end     func()
	conn    *grpc.ClientConn
	client  instancev1.InstanceServiceClient
}

func startWriter(ctx context.Context, api *kubetest.Server, root string) (w *writer, err error) {
	w = &writer{api: api}
	if w.dir, err = os.MkdirTemp("", "akri-bench-"); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	for _, service := range []string{"instance-writer", "device-plugin-host", "config-plugin-allocator"} {
		if err := w.build(ctx, root, service); err != nil {
			return nil, err
		}
	}
	kubeconfig := filepath.Join(w.dir, "kubeconfig")
	if err := writeKubeconfig(api, kubeconfig); err != nil {
		return nil, err
	}
	if w.address, err = freeAddress(ctx); err != nil {
		return nil, err
	}
	if w.end, err = w.start(ctx, "instance-writer", "--address", w.address, "--kubeconfig", kubeconfig); err != nil {
		return nil, err
	}
	if w.conn, err = rpc.Dial(w.address, prometheus.NewRegistry()); err != nil {
		return nil, err
	}
	w.client = instancev1.NewInstanceServiceClient(w.conn)
	return w, nil
}

func (w *writer) build(ctx context.Context, root, service string) error {
	build := exec.CommandContext(ctx, "go", "build", "-o", w.dir+"/", "./services/"+service+"/cmd/"+service)
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w: %s", service, err, output)
	}
	return nil
}

// start runs one of the programs until end is called.
func (w *writer) start(ctx context.Context, service string, flags ...string) (end func(), err error) {
	cmd := exec.CommandContext(ctx, filepath.Join(w.dir, service), append(flags, "--admin-address=", "--log-level=error")...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", service, err)
	}
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it says that it was killed
	}, nil
}

func (w *writer) stop() error {
	w.end()
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
