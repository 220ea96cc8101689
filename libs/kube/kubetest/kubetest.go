// Package kubetest runs etcd and an API server on loopback for tests, without nodes. It needs the
// binaries that `make binaries` builds.
package kubetest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"akri.sh/libs/kube/kubetest/controlplane"
	"akri.sh/libs/listentest"
)

const (
	token        = "kubetest"
	startTimeout = 60 * time.Second
	pollInterval = 50 * time.Millisecond
)

// Server is a running API server with its etcd.
type Server struct {
	dir             string
	servers         controlplane.Config
	etcd, apiServer *exec.Cmd
	config          *rest.Config
}

// Main runs the tests of a package against one API server with the Akri CRDs:
// `func TestMain(m *testing.M) { kubetest.Main(m, &server) }`.
func Main(m *testing.M, server **Server) {
	if os.Getenv("AKRI_UPDATE_FLAGS") != "" {
		os.Exit(m.Run()) // only TestFlags, for make flags
	}
	os.Exit(run(m, server))
}

func run(m *testing.M, server **Server) int {
	started, err := Start(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, "start API server:", err)
		return 1
	}
	defer started.Stop()
	*server = started
	return m.Run()
}

// Start starts etcd and the API server with additional flags, installs the Akri CRDs, and returns
// when the server is ready.
func Start(ctx context.Context, flags ...string) (*Server, error) {
	server, err := StartWithoutCRDs(ctx, flags...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := server.installCRDs(ctx); err != nil {
		server.Stop()
		return nil, err
	}
	return server, nil
}

// StartWithoutCRDs is Start without the Akri CRDs.
func StartWithoutCRDs(ctx context.Context, flags ...string) (*Server, error) {
	return start(ctx, controlplane.Config{}, flags)
}

// Join starts another API server on the etcd of the server, with additional flags. Stop it first.
func (s *Server) Join(ctx context.Context, flags ...string) (*Server, error) {
	return start(ctx, s.servers, flags)
}

// start starts an API server on the etcd of the servers, or on a new one if they have none, and
// returns when it is ready.
func start(ctx context.Context, servers controlplane.Config, flags []string) (_ *Server, err error) {
	binDir, err := findBinaries()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "akri-kubetest-")
	if err != nil {
		return nil, fmt.Errorf("create directory: %w", err)
	}
	s := &Server{dir: dir, servers: servers}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()

	ports := make([]string, 3)
	for i := range ports {
		address, err := listentest.Find()
		if err != nil {
			return nil, err
		}
		if _, ports[i], err = net.SplitHostPort(address); err != nil {
			return nil, err
		}
	}
	if servers.EtcdClientURL == "" {
		if err := s.startEtcd(binDir, ports[1], ports[2]); err != nil {
			return nil, err
		}
	}
	s.servers.SecurePort = ports[0]
	if err := s.startAPIServer(binDir, flags); err != nil {
		return nil, err
	}

	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := s.waitReady(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Config returns a client configuration with all rights.
func (s *Server) Config() *rest.Config { return rest.CopyConfig(s.config) }

// Stop kills the processes and removes their data.
func (s *Server) Stop() {
	for _, command := range []*exec.Cmd{s.apiServer, s.etcd} {
		if command != nil && command.Process != nil {
			_ = command.Process.Kill()
			_ = command.Wait()
		}
	}
	_ = os.RemoveAll(s.dir)
}

// Pause stops the API server from answering until Resume. Clients see what they see when the
// network to it is lost.
func (s *Server) Pause() error {
	if err := s.apiServer.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	// Its threads run for a moment after the signal was sent.
	_, err := syscall.Wait4(s.apiServer.Process.Pid, nil, syscall.WUNTRACED, nil)
	return err
}

// Resume ends a Pause.
func (s *Server) Resume() error { return s.apiServer.Process.Signal(syscall.SIGCONT) }

func (s *Server) startEtcd(binDir, clientPort, peerPort string) error {
	host := listentest.Host()
	s.servers = controlplane.Config{
		Dir: s.dir, EtcdDataDir: filepath.Join(s.dir, "etcd"),
		EtcdClientURL: "http://" + net.JoinHostPort(host, clientPort), EtcdPeerURL: "http://" + net.JoinHostPort(host, peerPort),
		BindAddress: host, ServiceCIDR: "10.96.0.0/24",
	}
	if err := s.servers.WriteServiceAccountKey(); err != nil {
		return err
	}

	var err error
	s.etcd, err = s.command(filepath.Join(binDir, controlplane.Etcd), s.servers.EtcdFlags())
	return err
}

func (s *Server) startAPIServer(binDir string, additional []string) error {
	servers := s.servers
	tokens := filepath.Join(s.dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+",admin,1,system:masters\n"), 0o600); err != nil {
		return fmt.Errorf("write token: %w", err)
	}
	flags := append(servers.APIServerFlags(), "--cert-dir="+filepath.Join(s.dir, "pki"), "--token-auth-file="+tokens,
		"--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount")
	flags = append(flags, additional...)
	var err error
	if s.apiServer, err = s.command(filepath.Join(binDir, controlplane.APIServer), flags); err != nil {
		return err
	}
	s.config = &rest.Config{
		Host: "https://" + net.JoinHostPort(servers.BindAddress, servers.SecurePort), BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}
	return nil
}

func (s *Server) command(path string, flags []string) (*exec.Cmd, error) {
	log, err := os.Create(s.logFile(filepath.Base(path)))
	if err != nil {
		return nil, fmt.Errorf("create log: %w", err)
	}
	defer log.Close() // the process has a descriptor of its own
	command := exec.Command(path, flags...)
	// They collect garbage less often, which costs more CPU time in tests than the memory is worth.
	command.Env = append(os.Environ(), "GOGC=400")
	command.Stdout, command.Stderr = log, log
	// The servers end with the test process, also if it is killed.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(path), err)
	}
	return command, nil
}

func (s *Server) logFile(name string) string { return filepath.Join(s.dir, name+".log") }

func (s *Server) waitReady(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, pollInterval, true, func(ctx context.Context) (bool, error) {
		return controlplane.Ready(ctx, s.config) == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the API server: %w\n%s\n%s", err, s.lastOutput(controlplane.Etcd), s.lastOutput(controlplane.APIServer))
	}
	return nil
}

func (s *Server) lastOutput(name string) string {
	output, _ := os.ReadFile(s.logFile(name))
	return fmt.Sprintf("%s: %s", name, output[max(0, len(output)-2000):])
}

// findBinaries returns the directory of the binaries that `make binaries` builds.
func findBinaries() (string, error) {
	cacheDir := os.Getenv("AKRI_CACHE")
	if cacheDir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find cache directory: %w", err)
		}
		cacheDir = filepath.Join(user, "akri")
	}
	binDir := filepath.Join(cacheDir, "bin")
	for _, name := range []string{controlplane.Etcd, controlplane.APIServer} {
		if _, err := os.Stat(filepath.Join(binDir, name)); err != nil {
			return "", fmt.Errorf("%w; run make binaries", err)
		}
	}
	return binDir, nil
}
