// Package demo shows Akri on a real cluster, with device plugins and with Dynamic Resource
// Allocation: a device is plugged in, discovered, offered, used and unplugged.
package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/integration/cluster"
	"akri.sh/integration/cluster/binaries"
	"akri.sh/integration/devices"
	"akri.sh/integration/mesh"
)

// stepTimeout limits each wait of the demo.
const stepTimeout = 3 * time.Minute

// Options of a demo are the flags of akri-demo.
type Options struct {
	Dir string    `help:"Directory of the cluster's state." env:"AKRI_CLUSTER_DIR" type:"path"` // Default: that of package cluster.
	Out io.Writer `kong:"-"`
}

type demo struct {
	*report
	mesh  *mesh.Mesh
	nodes int
	form  *form
}

// form is one of the two ways in which Pods get devices.
type form struct {
	name string
	// resources is the value of global.resources.
	resources string
	// shared and plugged are the times until the brokers of shared devices and of the device that
	// was plugged in are ready.
	shared, plugged time.Duration
}

const dynamic = "dra"

// Run runs the demo. The cluster keeps running.
func Run(ctx context.Context, options Options) error {
	d := &demo{report: newReport(options.Out)}
	end, err := d.start(ctx, options.Dir)
	if err != nil {
		return err
	}
	defer end()

	forms := []*form{{name: "device plugins", resources: "devicePlugin"}, {name: "Dynamic Resource Allocation", resources: dynamic}}
	if d.external() { // its version may be too old
		forms = forms[:1]
	}
	for _, d.form = range forms {
		for _, step := range []func(context.Context) error{d.install, d.shareEcho, d.hotPlug} {
			if err := step(ctx); err != nil {
				return err
			}
		}
	}
	d.compare(forms)
	d.hints()
	return nil
}

// start builds everything and starts the cluster. The caller must call end.
func (d *demo) start(ctx context.Context, dir string) (end func(), err error) {
	cache, err := binaries.CacheDir()
	if err != nil {
		return nil, err
	}
	lock, err := d.lock(ctx, cache)
	if err != nil {
		return nil, err
	}
	copied, remove, err := copySources()
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	finish := func() {
		remove()
		_ = lock.Close()
	}
	defer func() {
		if err != nil {
			finish()
		}
	}()

	images, err := d.buildImages(ctx, cache)
	if err != nil {
		return nil, err
	}
	if err := d.buildPrograms(ctx); err != nil {
		return nil, err
	}
	if err := d.startCluster(ctx, dir, images); err != nil {
		return nil, err
	}
	d.mesh.Root, d.mesh.Held = copied, []*os.File{lock}
	return finish, nil
}

func (d *demo) startCluster(ctx context.Context, dir string, images []string) error {
	d.title("Step 4 of 5: start a cluster with real kubelets, containerd, API server and etcd")
	running, err := cluster.Ensure(ctx, cluster.Config{Dir: dir, Images: images, Progress: d.step})
	if err != nil {
		return fmt.Errorf("start cluster: %w", err)
	}

	if d.mesh, err = mesh.New(ctx, running); err != nil {
		return err
	}
	nodes, err := d.mesh.NodeNames(ctx)
	if err != nil {
		return err
	}
	d.nodes = len(nodes)

	if d.external() {
		d.done("using the existing cluster of KUBECONFIG=%s: %s. Its nodes must have the %s images or be able to pull them", running.Kubeconfig(),
			strings.Join(nodes, ", "), mesh.DevTag)
		return nil
	}
	d.done("the cluster is ready")
	return nil
}

// external reports whether the cluster runs elsewhere. Its nodes do not see devices of this
// machine.
func (d *demo) external() bool { return len(d.mesh.Cluster.Nodes()) == 0 }

func (d *demo) install(ctx context.Context) error {
	d.title("Step 5 of 5: install Akri with helm and use devices, with " + d.form.name)
	if !d.external() { // elsewhere, the helm of another user can work on the release
		if err := d.mesh.Recover(ctx); err != nil {
			return err
		}
	}
	if err := d.removeConfigurations(ctx); err != nil {
		return err
	}
	err := d.while("helm is installing Akri and waiting for the workloads", func() error {
		return d.mesh.Install(ctx, "global.resources="+d.form.resources)
	})
	if err != nil {
		return err
	}
	d.done("all services are ready")
	return nil
}

// removeConfigurations removes those of the demo, because the services of one form cannot end the
// Pods of the other one.
func (d *demo) removeConfigurations(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for _, name := range []string{"debug-echo", "udev-zram", "udev-null"} {
		err := d.mesh.Configurations.In(namespace).Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove Configuration: %w", err)
		}
		err = mesh.Await(ctx, "removal of the brokers", func(ctx context.Context) error {
			return none(d.mesh.BrokersOf(ctx, namespace, name))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// shareEcho shows shared devices: both nodes see them, and each Instance has slots for two brokers.
func (d *demo) shareEcho(ctx context.Context) error {
	d.title("Shared devices: debug-echo, visible on both nodes, capacity 2")
	since := time.Now()
	if err := d.mesh.Apply(ctx, "deploy", "samples", "debug-echo.yaml"); err != nil {
		return err
	}
	d.done("Configuration applied")
	const devices, capacity = 2, 2
	err := d.follow(ctx, since, &d.form.shared, expectation{
		configuration: "debug-echo", instances: devices, brokers: devices * min(capacity, d.nodes),
	})
	if err == nil && d.external() {
		err = d.table(ctx)
	}
	return err
}

// hotPlug plugs a real device in and out.
func (d *demo) hotPlug(ctx context.Context) error {
	if d.external() {
		d.step("skipped the hot-plug: the nodes of an existing cluster do not see devices of this machine")
		return nil
	}
	d.title("Real device: plugged in")
	if err := d.mesh.Apply(ctx, "deploy", "samples", "udev-zram.yaml"); err != nil {
		return err
	}

	since := time.Now()
	zram, err := devices.PlugZram(ctx, "hello from a real block device")
	if errors.Is(err, devices.ErrNoZram) {
		d.step(err.Error() + "; using /dev/null instead, which cannot be unplugged")
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
	expected := expectation{
		configuration: "udev-zram", device: zram.DevPath(), instances: d.nodes, brokers: d.nodes, content: zram.Content,
	}
	if err := d.follow(ctx, since, &d.form.plugged, expected); err != nil {
		return errors.Join(err, unplug())
	}
	if err := d.table(ctx); err != nil {
		return errors.Join(err, unplug())
	}

	d.title("Real device: unplugged")
	since = time.Now()
	if err := unplug(); err != nil {
		return err
	}
	d.done("%s is unplugged", zram.Node())
	if err := d.awaitRemoval(ctx, since, expected); err != nil {
		return err
	}
	return d.table(ctx)
}

func (d *demo) showNull(ctx context.Context) error {
	since := time.Now()
	if err := d.mesh.Apply(ctx, "deploy", "samples", "udev-null.yaml"); err != nil {
		return err
	}
	if err := d.follow(ctx, since, &d.form.plugged, expectation{configuration: "udev-null", instances: d.nodes, brokers: d.nodes}); err != nil {
		return err
	}
	return d.table(ctx)
}

func (d *demo) table(ctx context.Context) error {
	fmt.Fprintln(d.out)
	return d.mesh.PrintTable(ctx, d.out)
}

// compare prints the times of both forms.
func (d *demo) compare(forms []*form) {
	if len(forms) < 2 {
		return
	}
	d.title("Brokers are ready after")
	for _, form := range forms {
		fmt.Fprintf(d.out, "  %-28s shared devices %5.1f s   plugged-in device %5.1f s\n", form.name, form.shared.Seconds(), form.plugged.Seconds())
	}
}

func (d *demo) hints() {
	fmt.Fprintf(d.out, `
The cluster keeps running. Try:

  export KUBECONFIG=%s
  export PATH=%s:$PATH
  kubectl get akric,akrii,pods,services
  kubectl describe akric debug-echo
  kubectl get nodes -o custom-columns=NODE:.metadata.name,ALLOCATABLE:.status.allocatable
  kubectl get resourceslices,deviceclasses,resourceclaims
`, d.mesh.Cluster.Kubeconfig(), d.mesh.Bin())
	if d.external() {
		fmt.Fprintf(d.out, "  helm uninstall %s --namespace %s             # uninstall Akri\n", mesh.Release, mesh.Namespace)
		return
	}
	fmt.Fprint(d.out, `  cat /sys/class/zram-control/hot_add          # plug in a device; prints its number N
  kubectl get akrii --watch                    # watch its Instances
  echo N > /sys/class/zram-control/hot_remove  # unplug it
  make demo-down                               # remove the cluster
`)
}
