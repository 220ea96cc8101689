// Package process runs services as processes, without a cluster.
package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"akri.sh/libs/kube/kubetest"

	"akri.sh/integration/cluster/binaries"
)

// Process is a running service.
type Process struct {
	dir string
	cmd *exec.Cmd
}

// Start builds a service and starts it with the flags. If api is not nil, the service gets a
// kubeconfig of that API server.
func Start(ctx context.Context, api *kubetest.Server, name string, flags ...string) (p *Process, err error) {
	root, err := binaries.Root()
	if err != nil {
		return nil, err
	}
	p = &Process{}
	if p.dir, err = os.MkdirTemp("", "akri-process-"); err != nil {
		return nil, fmt.Errorf("create directory: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(p.dir))
		}
	}()
	binary := filepath.Join(p.dir, name)
	build := exec.CommandContext(ctx, "go", "build", "-o", binary, "./services/"+name+"/cmd/"+name)
	build.Dir = root
	if output, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build %s: %w: %s", name, err, output)
	}
	if api != nil {
		kubeconfig := filepath.Join(p.dir, "kubeconfig")
		if err := writeKubeconfig(api, kubeconfig); err != nil {
			return nil, err
		}
		flags = append([]string{"--kubeconfig", kubeconfig}, flags...)
	}
	p.cmd = exec.CommandContext(ctx, binary, flags...)
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Stop kills the process.
func (p *Process) Stop() error {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // the error is that it was killed
	return os.RemoveAll(p.dir)
}

// FreeAddress returns an unused TCP address of the loopback.
func FreeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}

func writeKubeconfig(api *kubetest.Server, file string) error {
	config := api.Config()
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: config.Host, InsecureSkipTLSVerify: true}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"u": {Token: config.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "x",
	}, file)
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
