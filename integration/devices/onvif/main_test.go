//go:build onvif

// Not part of `make test` yet, and so behind a tag: the simulator's check by a client of others fails, and a Hello is followed
// after a second. `go test -tags onvif ./devices/onvif` runs all.

package onvif_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// What the tests get from outside their network namespace: the handler's binary and the folder of the foreign client.
const (
	handlerVariable = "AKRI_TEST_ONVIF_HANDLER"
	checkVariable   = "AKRI_TEST_ONVIF_CHECK"
)

// TestMain runs the tests in a network namespace of their own, where loopback has multicast and port 3702 is free.
func TestMain(m *testing.M) {
	if os.Getenv(handlerVariable) != "" {
		// The foreign client leaves it to the routes where multicast goes.
		if err := errors.Join(
			run("ip", "link", "set", "lo", "up", "multicast", "on"), run("ip", "route", "add", "224.0.0.0/4", "dev", "lo"),
		); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	if err := outside(); err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			os.Exit(exit.ExitCode())
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func outside() error {
	folder, err := os.MkdirTemp("", "onvif")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	binary := filepath.Join(folder, "handler-onvif")
	if err := run("go", "build", "-race", "-o", binary, "akri.sh/services/handler-onvif/cmd/handler-onvif"); err != nil {
		return err
	}
	check := filepath.Join(folder, "check")
	if err := errors.Join(os.CopyFS(check, os.DirFS("check")), npm(check)); err != nil {
		return err
	}
	self := exec.Command("/proc/self/exe", os.Args[1:]...)
	self.Stdin, self.Stdout, self.Stderr = os.Stdin, os.Stdout, os.Stderr
	self.Env = append(os.Environ(), handlerVariable+"="+binary, checkVariable+"="+check)
	self.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Getuid() != 0 {
		self.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		self.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		self.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	return self.Run()
}

// npm installs the foreign client as its lock says.
func npm(folder string) error {
	if _, err := os.Stat(filepath.Join(folder, "package-lock.json")); errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, err := exec.LookPath("npm"); err != nil {
		return fmt.Errorf("the simulated cameras are checked by a client for Node.js; install nodejs and npm: %w", err)
	}
	return run("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent", "--prefix", folder)
}

func run(name string, arguments ...string) error {
	output, err := exec.Command(name, arguments...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %v: %w\n%s", name, arguments, err, output)
	}
	return nil
}
