package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"akri.sh/integration/cluster/binaries"
)

// Images are the images that the demo uses. The first one has most dependencies of the others.
var Images = []string{
	"broker-controller", "cleanup", "config-plugin-allocator", "device-plugin-host", "discovery-operator", "dra-controller",
	"dra-kubelet-plugin", "handler-debug-echo", "handler-udev", "instance-writer", "registrar", "sample-broker",
}

// Programs are the names of the programs that run the cluster and install Akri. Each one costs a
// cold demo time.
func Programs() []string { return append(binaries.OfCluster(""), "helm") }

// sources are the directories that the demo reads after its builds.
var sources = []string{"charts/akri", "deploy/samples"}

// lockInterval is the time between two attempts to get the lock.
const lockInterval = 500 * time.Millisecond

// lock returns a file that only one demo of the cache can have. helm inherits it: if a demo is
// killed, its helm continues, and the next demo waits for its end.
func (d *demo) lock(ctx context.Context, cache string) (*os.File, error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, fmt.Errorf("create cache directory: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(cache, "demo.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open lock: %w", err)
	}
	for waiting := false; ; waiting = true {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", file.Name(), err), file.Close())
		}
		if !waiting {
			d.step("waiting for another demo, or for helm of a demo that was killed")
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), file.Close())
		case <-time.After(lockInterval):
		}
	}
}

// copySources returns a copy of the sources, because the source tree can change while the demo
// builds.
func copySources() (dir string, remove func(), err error) {
	root, err := binaries.Root()
	if err != nil {
		return "", nil, err
	}
	if dir, err = os.MkdirTemp("", "akri-demo-"); err != nil {
		return "", nil, fmt.Errorf("create directory: %w", err)
	}
	remove = func() { _ = os.RemoveAll(dir) }
	for _, source := range sources {
		if err := os.CopyFS(filepath.Join(dir, source), os.DirFS(filepath.Join(root, source))); err != nil {
			remove()
			return "", nil, fmt.Errorf("copy %s: %w", source, err)
		}
	}
	return dir, remove, nil
}

// buildImages builds the images and returns their archives.
func (d *demo) buildImages(ctx context.Context, cache string) ([]string, error) {
	d.title(fmt.Sprintf("Step 2 of 5: compile Akri and build its %d images", len(Images)))
	directory := filepath.Join(cache, "images")
	command := exec.CommandContext(ctx, "akri-image", append([]string{"build", "--out", directory}, Images...)...)
	command.Stdout, command.Stderr = d.out, d.out
	command.Cancel = func() error { return command.Process.Signal(os.Interrupt) }
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("build images with akri-image, which is in the PATH of make demo: %w", err)
	}
	archives := make([]string, len(Images))
	for i, name := range Images {
		archives[i] = filepath.Join(directory, name+".tar")
	}
	return archives, nil
}

// buildPrograms builds what runs the cluster and what installs Akri.
func (d *demo) buildPrograms(ctx context.Context) error {
	d.title("Step 3 of 5: compile Kubernetes, etcd, containerd, CoreDNS and helm (minutes the first time)")
	if _, err := binaries.Ensure(ctx, d.step, Programs()...); err != nil {
		return err
	}
	d.done("all programs are compiled")
	return nil
}
