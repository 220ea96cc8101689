// Package demo shows Akri at work on a real cluster: a device is plugged in, found, offered, used, and pulled out.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"akri.sh/integration/cluster"
	"akri.sh/integration/cluster/binaries"
	"akri.sh/integration/devices"
	"akri.sh/integration/mesh"
)

// stepWithin bounds each wait of the demo: what takes longer is broken.
const stepWithin = 3 * time.Minute

// Options of a demo.
type Options struct {
	// Dir of the cluster; empty: the default one.
	Dir string
	Out io.Writer
}

type demo struct {
	*report
	mesh  *mesh.Mesh
	nodes int
}

// Run runs the demo. The cluster stays.
func Run(ctx context.Context, options Options) error {
	d := &demo{report: newReport(options.Out)}
	steps := []func(context.Context) error{
		func(ctx context.Context) error { return d.startCluster(ctx, options.Dir) },
		d.install,
		d.shareEcho,
		d.hotPlug,
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	d.hints()
	return nil
}

func (d *demo) startCluster(ctx context.Context, dir string) error {
	d.title("A cluster: real kubelets, containerd, API server and etcd")
	images, err := imageFiles()
	if err != nil {
		return err
	}
	running, err := cluster.Ensure(ctx, cluster.Config{Dir: dir, Images: images, Progress: d.step})
	if err != nil {
		return fmt.Errorf("start cluster: %w", err)
	}
	if d.mesh, err = mesh.On(ctx, running); err != nil {
		return err
	}
	nodes, err := d.mesh.NodeNames(ctx)
	if err != nil {
		return err
	}
	d.nodes = len(nodes)
	if d.external() {
		d.done("KUBECONFIG=%s names an existing cluster: %s. Its nodes must be able to pull or have the %s images", running.Kubeconfig(),
			strings.Join(nodes, ", "), mesh.DevTag)
		return nil
	}
	d.done("the cluster is up")
	return nil
}

// external says that the cluster's nodes are not this machine's, so that nothing that is plugged in here shows there.
func (d *demo) external() bool { return len(d.mesh.Cluster.Nodes()) == 0 }

func imageFiles() ([]string, error) {
	cache, err := binaries.CacheDir()
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(cache, "images", "*.tar"))
	if err != nil || len(files) == 0 {
		return nil, errors.Join(err, fmt.Errorf("no images in %s: make images builds them", filepath.Join(cache, "images")))
	}
	return files, nil
}

func (d *demo) install(ctx context.Context) error {
	d.title("The mesh, installed with helm")
	err := d.while("helm is installing; waiting for the workloads", func() error { return d.mesh.Install(ctx) })
	if err != nil {
		return err
	}
	d.done("all services are ready")
	return nil
}

// shareEcho shows a device that both nodes see: one Instance with slots for two brokers.
func (d *demo) shareEcho(ctx context.Context) error {
	d.title("A shared device: debug-echo, seen by both nodes, capacity 2")
	since := time.Now()
	if err := d.mesh.Apply(ctx, "deploy", "samples", "debug-echo.yaml"); err != nil {
		return err
	}
	d.done("Configuration applied")
	const devices, capacity = 2, 2
	err := d.follow(ctx, since, expectation{
		configuration: "debug-echo", instances: devices, brokers: devices * min(capacity, d.nodes),
	})
	if err == nil && d.external() {
		err = d.table(ctx)
	}
	return err
}

// hotPlug plugs a real device in and out again.
func (d *demo) hotPlug(ctx context.Context) error {
	if d.external() {
		d.step("a device that is plugged in here does not show on the nodes of an existing cluster: not shown")
		return nil
	}
	d.title("A real device, plugged in")
	if err := d.mesh.Apply(ctx, "deploy", "samples", "udev-zram.yaml"); err != nil {
		return err
	}
	since := time.Now()
	zram, err := devices.PlugZram(ctx, "hello from a real block device")
	if errors.Is(err, devices.ErrNoZram) {
		d.step(err.Error() + ": showing /dev/null instead, which cannot be pulled out")
		return d.showNull(ctx)
	}
	if err != nil {
		return err
	}
	unplug := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		return zram.Unplug(ctx)
	}
	d.done("%s is plugged in (%s)", zram.Node(), zram.DevPath())
	expected := expectation{configuration: "udev-zram", instances: d.nodes, brokers: d.nodes, content: zram.Content}
	if err := d.follow(ctx, since, expected); err != nil {
		return errors.Join(err, unplug())
	}
	if err := d.table(ctx); err != nil {
		return errors.Join(err, unplug())
	}
	d.title("The device, pulled out")
	since = time.Now()
	if err := unplug(); err != nil {
		return err
	}
	d.done("%s is pulled out", zram.Node())
	if err := d.gone(ctx, since, expected.configuration); err != nil {
		return err
	}
	return d.table(ctx)
}

func (d *demo) showNull(ctx context.Context) error {
	since := time.Now()
	if err := d.mesh.Apply(ctx, "deploy", "samples", "udev-null.yaml"); err != nil {
		return err
	}
	if err := d.follow(ctx, since, expectation{configuration: "udev-null", instances: d.nodes, brokers: d.nodes}); err != nil {
		return err
	}
	return d.table(ctx)
}

func (d *demo) table(ctx context.Context) error {
	fmt.Fprintln(d.out)
	return d.mesh.Table(ctx, d.out)
}

func (d *demo) hints() {
	fmt.Fprintf(d.out, `
The cluster stays. Try:

  export KUBECONFIG=%s
  export PATH=%s:$PATH
  kubectl get akric,akrii,pods,services
  kubectl describe akric debug-echo
  kubectl get nodes -o custom-columns=NODE:.metadata.name,ALLOCATABLE:.status.allocatable
`, d.mesh.Cluster.Kubeconfig(), d.mesh.Bin())
	if d.external() {
		fmt.Fprintf(d.out, "  helm uninstall %s --namespace %s             # remove Akri\n", mesh.Release, mesh.Namespace)
		return
	}
	fmt.Fprint(d.out, `  cat /sys/class/zram-control/hot_add          # plug in a device; it prints its number N
  kubectl get akrii --watch                    # see it come
  echo N > /sys/class/zram-control/hot_remove  # pull it out
  make demo-down                               # remove the cluster
`)
}
