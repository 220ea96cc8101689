package onvif_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"akri.sh/integration/cluster/binaries"
	"akri.sh/integration/devices/node"
)

// Environment variables of the process that runs in the network namespace: the handler's binary,
// and the node modules of the independent client.
const (
	handlerVariable = "AKRI_TEST_ONVIF_HANDLER"
	modulesVariable = "AKRI_TEST_ONVIF_MODULES"
)

// TestMain runs the tests in a new network namespace, in which loopback supports multicast and port
// 3702 is free.
func TestMain(m *testing.M) {
	if os.Getenv(handlerVariable) != "" {
		// The independent client sends multicast by the routes.
		if err := errors.Join(
			run("ip", "link", "set", "lo", "up", "multicast", "on"), run("ip", "route", "add", "224.0.0.0/4", "dev", "lo"),
		); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	if err := runInNamespace(); err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			os.Exit(exit.ExitCode())
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runInNamespace() error {
	directory, err := os.MkdirTemp("", "onvif")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	binary := filepath.Join(directory, "handler-onvif")
	if err := build(binary); err != nil {
		return err
	}
	modules, err := node.Modules(context.Background(), "check")
	if err != nil {
		return err
	}
	self := exec.Command("/proc/self/exe", os.Args[1:]...)
	self.Stdin, self.Stdout, self.Stderr = os.Stdin, os.Stdout, os.Stderr
	self.Env = append(os.Environ(), handlerVariable+"="+binary, modulesVariable+"="+modules)
	self.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Getuid() != 0 {
		self.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		self.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		self.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	return self.Run()
}

func build(binary string) error {
	root, err := binaries.Root()
	if err != nil {
		return err
	}
	arguments := []string{"-C", filepath.Join(root, "services", "handler-onvif"), "build", "-o", binary}
	if os.Getenv(measureVariable) == "" {
		arguments = append(arguments, "-race")
	} else {
		arguments = append(arguments, "-ldflags=-s -w", "-trimpath") // as in the image
	}
	return run("go", append(arguments, "./cmd/handler-onvif")...)
}

func run(name string, arguments ...string) error {
	output, err := exec.Command(name, arguments...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %v: %w\n%s", name, arguments, err, output)
	}
	return nil
}
