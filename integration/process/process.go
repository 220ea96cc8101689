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
	dir    string
	memory memoryGroup
	binary string
	flags  []string
	env    []string
	cmd    *exec.Cmd
}

// Start builds a service and starts it with the flags. If api is not nil, the service gets a
// kubeconfig of that API server. ctx limits the build; the process runs until Stop.
func Start(ctx context.Context, api *kubetest.Server, name string, flags ...string) (*Process, error) {
	return StartWithEnv(ctx, api, nil, name, flags...)
}

// StartWithEnv is Start with additional environment variables.
func StartWithEnv(ctx context.Context, api *kubetest.Server, env []string, name string, flags ...string) (*Process, error) {
	return (&Process{flags: flags, env: env}).run(api, func(dir string) (string, error) { return build(ctx, name, dir) })
}

// StartBinary starts a binary with the flags and a kubeconfig of the API server.
func StartBinary(api *kubetest.Server, binary string, flags ...string) (*Process, error) {
	return (&Process{flags: flags}).run(api, func(string) (string, error) { return binary, nil })
}

// run starts the binary that find returns. find may put it into the directory of the process.
func (p *Process) run(api *kubetest.Server, find func(dir string) (string, error)) (_ *Process, err error) {
	if p.dir, err = os.MkdirTemp("", "akri-process-"); err != nil {
		return nil, fmt.Errorf("create directory: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.memory.remove(), os.RemoveAll(p.dir))
		}
	}()
	if p.binary, err = find(p.dir); err != nil {
		return nil, err
	}
	if api != nil {
		kubeconfig := filepath.Join(p.dir, "kubeconfig")
		if err := writeKubeconfig(api, kubeconfig); err != nil {
			return nil, err
		}
		p.flags = append([]string{"--kubeconfig", kubeconfig}, p.flags...)
	}
	if p.memory, err = newMemoryGroup(filepath.Base(p.dir)); err != nil {
		return nil, err
	}
	if err := p.start(); err != nil {
		return nil, err
	}
	return p, nil
}

// build builds a service and copies its binary to a directory, where later builds do not change it.
// The original is in a fixed place, so that it is linked once for several processes.
func build(ctx context.Context, name, dir string) (string, error) {
	root, err := binaries.Root()
	if err != nil {
		return "", err
	}
	built := filepath.Join(root, "bin", "services", name)
	command := exec.CommandContext(ctx, "go", "build", "-o", built, "./services/"+name+"/cmd/"+name)
	command.Dir = root
	if output, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w: %s", name, err, output)
	}
	content, err := os.ReadFile(built)
	if err != nil {
		return "", fmt.Errorf("read binary: %w", err)
	}
	binary := filepath.Join(dir, name)
	if err := os.WriteFile(binary, content, 0o755); err != nil {
		return "", fmt.Errorf("copy binary: %w", err)
	}
	return binary, nil
}

func (p *Process) start() error {
	p.cmd = exec.Command(p.binary, p.flags...) //nolint:noctx // Stop ends it
	p.cmd.Env = append(os.Environ(), p.env...)
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", filepath.Base(p.binary), err)
	}
	if err := p.memory.add(p.PID()); err != nil {
		p.kill()
		return err
	}
	return nil
}

func (p *Process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // the error is that it was killed
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Restart kills the process with SIGKILL and starts it again.
func (p *Process) Restart() error {
	p.kill()
	return p.start()
}

// Stop kills the process.
func (p *Process) Stop() error {
	p.kill()
	return errors.Join(p.memory.remove(), os.RemoveAll(p.dir))
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
