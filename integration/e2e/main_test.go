// Package e2e_test tests Akri on a real cluster: real kubelets, containerd, API server and etcd, a
// real block device that is plugged in and out, and an installation with helm.
package e2e_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
)

// timeout bounds waits that end by themselves if Akri works. It does not depend on the speed of the
// machine, but it exceeds the 130 s of a preparation of a ResourceClaim that waits for 40 s in vain
// and that the kubelet repeats up to 90 s later.
const timeout = 4 * time.Minute

// akri is the installation under test.
var akri *mesh.Mesh

func TestMain(m *testing.M) { os.Exit(run(m)) }

// fastKubelet has the settings that device-plugin-host's README recommends: the scheduler sees a
// device after one second instead of ten.
const fastKubelet = "nodeStatusUpdateFrequency: 1s\nnodeStatusReportFrequency: 5m"

// run starts the cluster in AKRI_E2E_DIR with the images in AKRI_IMAGES and runs the tests.
// AKRI_E2E_KEEP=1 keeps the cluster, for debugging and for a faster next run.
// AKRI_E2E_KUBELET=default uses the default kubelet configuration. AKRI_E2E_KUBERNETES=1.34 runs
// the tests whose names begin with TestVersion on Kubernetes 1.34. AKRI_E2E_NODES has the names of
// the nodes, separated by commas. Most scenarios require the default of two nodes.
func run(m *testing.M) int {
	ctx := context.Background()
	started := time.Now()
	progress := func(text string) { fmt.Printf("%6.1fs %s\n", time.Since(started).Seconds(), text) }
	running, err := start(ctx, progress)
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
	if akri, err = mesh.New(ctx, running); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if _, err := os.Stat(akri.Path("bin/kubectl-akri")); err != nil {
		fmt.Fprintln(os.Stderr, "run `make kubectl-akri` first:", err)
		return 1
	}
	progress("the cluster is ready")
	return m.Run()
}

func start(ctx context.Context, progress func(string)) (*cluster.Cluster, error) {
	images, err := mesh.ImageFiles(os.Getenv("AKRI_IMAGES"))
	if err != nil {
		return nil, err
	}
	var kubelet string
	if os.Getenv("AKRI_E2E_KUBELET") == "" {
		kubelet = fastKubelet
	}
	// The cluster of KUBECONFIG is never used, because the tests install, kill and uninstall.
	config := cluster.Config{Dir: cmp.Or(os.Getenv("AKRI_E2E_DIR"), "/tmp/akri-e2e"), Images: images, Kubelet: kubelet, Progress: progress}
	if names := os.Getenv("AKRI_E2E_NODES"); names != "" {
		config.Nodes = strings.Split(names, ",")
	}
	if config.Kubernetes = kubernetesVersion; kubernetesVersion != "" {
		config.Kubelet += "\n" + versionKubelet()
	}
	return cluster.Up(ctx, config)
}
