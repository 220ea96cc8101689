// Package netns creates network namespaces for simulated devices and runs functions in them.
package netns

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace. It exists until Close or the end of this process.
type Namespace struct {
	holder *exec.Cmd
	input  io.Closer
}

// New creates a namespace with only a loopback interface, which is up.
func New() (*Namespace, error) {
	holder := exec.Command("cat") // exits at the end of its input
	holder.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	input, err := holder.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("create pipe: %w", err)
	}
	if err := holder.Start(); err != nil {
		return nil, fmt.Errorf("create network namespace: %w", err)
	}
	n := &Namespace{holder: holder, input: input}
	if err := n.IP("link set lo up"); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

// Close removes the namespace with its network interfaces.
func (n *Namespace) Close() error { return errors.Join(n.input.Close(), n.holder.Wait()) }

// ID is the name of the namespace for ip(8).
func (n *Namespace) ID() string { return strconv.Itoa(n.holder.Process.Pid) }

// Path is the file of the namespace.
func (n *Namespace) Path() string { return "/proc/" + n.ID() + "/ns/net" }

// IP runs ip(8) commands in the namespace.
func (n *Namespace) IP(commands ...string) error {
	for _, command := range commands {
		arguments := append([]string{"--net=" + n.Path(), "ip"}, strings.Fields(command)...)
		if output, err := exec.Command("nsenter", arguments...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", command, err, strings.TrimSpace(string(output)))
		}
	}
	return nil
}

// Do calls f in the namespace of the file. Sockets that f opens stay in it. An empty path is the
// namespace of this process.
func Do(path string, f func() error) error {
	if path == "" {
		return f()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with this goroutine
		done <- enter(path, f)
	}()
	return <-done
}

func enter(path string, f func() error) error {
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer file.Close()
	if err := unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace: %w", err)
	}
	return f()
}
