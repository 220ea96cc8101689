// Package e2e_test runs the mesh on a real cluster: real kubelets, containerd, API server and etcd, a real block device that is
// plugged in and out, helm as a user calls it.
package e2e_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"akri.sh/integration/cluster"
	"akri.sh/integration/cluster/binaries"
	"akri.sh/integration/mesh"
)

const within = 90 * time.Second

// akri is the mesh under test.
var akri *mesh.Mesh

func TestMain(m *testing.M) { os.Exit(run(m)) }

// promptKubelet is what device-plugin-host's README advises: pods wait a second and not ten until the scheduler knows of a device.
const promptKubelet = "nodeStatusUpdateFrequency: 1s\nnodeStatusReportFrequency: 5m"

// run starts a cluster for the tests in AKRI_E2E_DIR, with the images in AKRI_IMAGES. AKRI_E2E_KEEP=1 keeps it for a look
// afterwards, and for a quicker next run. AKRI_E2E_AGENT=1 runs all of it on the agent, instead of several services on each node,
// AKRI_E2E_KUBELET=default on kubelets that tell of devices as late as they do by default.
func run(m *testing.M) int {
	ctx := context.Background()
	started := time.Now()
	say := func(text string) { fmt.Printf("%6.1fs %s\n", time.Since(started).Seconds(), text) }
	running, err := start(ctx, say)
	if err != nil {
		fmt.Fprintln(os.Stderr, "start cluster:", err)
		return 1
	}
	if os.Getenv("AKRI_E2E_KEEP") == "" {
		defer func() {
			if err := running.Down(ctx); err != nil {
				fmt.Fprintln(os.Stderr, "remove cluster:", err)
			}
		}()
	}
	if akri, err = mesh.On(ctx, running); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	akri.Values = chosen().values
	say("the cluster is up")
	return m.Run()
}

func start(ctx context.Context, say func(string)) (*cluster.Cluster, error) {
	cache, err := binaries.CacheDir()
	if err != nil {
		return nil, err
	}
	folder := cmp.Or(os.Getenv("AKRI_IMAGES"), filepath.Join(cache, "images"))
	images, err := filepath.Glob(filepath.Join(folder, "*.tar"))
	if err != nil || len(images) == 0 {
		return nil, errors.Join(err, fmt.Errorf("no images in %s: make images builds them", folder))
	}
	var kubelet string
	if os.Getenv("AKRI_E2E_KUBELET") == "" {
		kubelet = promptKubelet
	}
	// Never the cluster that KUBECONFIG names: the tests install, kill and uninstall.
	return cluster.Up(ctx, cluster.Config{Dir: cmp.Or(os.Getenv("AKRI_E2E_DIR"), "/tmp/akri-e2e"), Images: images, Kubelet: kubelet, Progress: say})
}
