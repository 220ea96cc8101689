// Package kubetest gives tests a real API server with etcd on loopback, no nodes. It needs the binaries that
// `make binaries` builds.
package kubetest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

const (
	token       = "kubetest"
	startWithin = 60 * time.Second
)

// Server is a running API server.
type Server struct {
	dir       string
	etcd, api *exec.Cmd
	config    *rest.Config
}

// Main runs the tests of a package against one API server: `func TestMain(m *testing.M) { kubetest.Main(m, &server) }`.
// The Akri CRDs are installed.
func Main(m *testing.M, server **Server) {
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

// Start starts etcd and the API server and returns once it is ready.
func Start(ctx context.Context) (server *Server, err error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "akri-kubetest-")
	if err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	s := &Server{dir: dir}
	defer func() {
		if err != nil {
			s.Stop()
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	if err := s.start(bin); err != nil {
		return nil, err
	}
	if err := s.waitReady(ctx); err != nil {
		return nil, err
	}
	return s, s.installCRDs(ctx)
}

// Config is how to reach the API server as its administrator.
func (s *Server) Config() *rest.Config { return rest.CopyConfig(s.config) }

// Stop ends the processes and removes their data.
func (s *Server) Stop() {
	for _, command := range []*exec.Cmd{s.api, s.etcd} {
		if command != nil && command.Process != nil {
			_ = command.Process.Kill()
			_ = command.Wait()
		}
	}
	_ = os.RemoveAll(s.dir)
}

// Pause stops the API server from answering until Resume: what a client sees when it is cut off.
func (s *Server) Pause() error { return s.api.Process.Signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *Server) Resume() error { return s.api.Process.Signal(syscall.SIGCONT) }

func (s *Server) start(bin string) error {
	ports, err := freePorts(3)
	if err != nil {
		return err
	}
	if err := s.writeCredentials(); err != nil {
		return err
	}
	client, peer, secure := "http://127.0.0.1:"+ports[0], "http://127.0.0.1:"+ports[1], ports[2]
	s.etcd, err = s.command(filepath.Join(bin, "etcd"), "--data-dir="+s.path("etcd"), "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls="+client, "--advertise-client-urls="+client, "--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer)
	if err != nil {
		return err
	}
	s.api, err = s.command(filepath.Join(bin, "kube-apiserver"), "--etcd-servers="+client, "--secure-port="+secure,
		"--bind-address=127.0.0.1", "--cert-dir="+s.path("pki"), "--service-account-key-file="+s.path("sa.key"),
		"--service-account-signing-key-file="+s.path("sa.key"), "--service-account-issuer=https://kubernetes.default.svc",
		"--token-auth-file="+s.path("tokens.csv"), "--authorization-mode=RBAC", "--service-cluster-ip-range=10.96.0.0/24",
		"--disable-admission-plugins=ServiceAccount")
	if err != nil {
		return err
	}
	s.config = &rest.Config{
		Host: "https://127.0.0.1:" + secure, BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}
	return nil
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

func (s *Server) command(path string, arguments ...string) (*exec.Cmd, error) {
	output, err := os.Create(s.path(filepath.Base(path) + ".log"))
	if err != nil {
		return nil, fmt.Errorf("create log: %w", err)
	}
	command := exec.Command(path, arguments...)
	command.Stdout, command.Stderr = output, output
	// A test that is killed takes its servers along.
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", filepath.Base(path), err)
	}
	return command, nil
}

func (s *Server) writeCredentials() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("generate key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encode key: %w", err)
	}
	if err := os.WriteFile(s.path("sa.key"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600); err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	if err := os.WriteFile(s.path("tokens.csv"), []byte(token+",admin,1,system:masters\n"), 0o600); err != nil {
		return fmt.Errorf("write token: %w", err)
	}
	return nil
}

// binaries is the folder of the binaries that `make binaries` builds.
func binaries() (string, error) {
	cacheDir := os.Getenv("AKRI_CACHE")
	if cacheDir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("find cache folder: %w", err)
		}
		cacheDir = filepath.Join(user, "akri")
	}
	bin := filepath.Join(cacheDir, "bin")
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			return "", fmt.Errorf("%w; `make binaries` builds it", err)
		}
	}
	return bin, nil
}

func freePorts(n int) ([]string, error) {
	ports := make([]string, 0, n)
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer listener.Close() // all are held until all are found
		ports = append(ports, strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
	}
	return ports, nil
}
