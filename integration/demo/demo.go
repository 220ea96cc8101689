// Package demo shows Akri on a real cluster, with Dynamic Resource Allocation and with device
// plugins: a device is plugged in, discovered, offered, used and unplugged.
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

	akriv0 "akri.sh/libs/apis/akri/v0"

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
	// resources is its name in Akri's API.
	resources string
	// shared and plugged are the times until the brokers of shared devices and of the device that
	// was plugged in are ready.
	shared, plugged time.Duration
}

// name is that for readers.
func (f *form) name() string {
	if f.resources == akriv0.ResourcesDRA {
		return "Dynamic Resource Allocation"
	}
	return "device plugins"
}

// other is the form that f is not.
func (f *form) other() *form {
	if f.resources == akriv0.ResourcesDRA {
		return &form{resources: akriv0.ResourcesDevicePlugin}
	}
	return &form{resources: akriv0.ResourcesDRA}
}

// Run runs the demo: first in the way that the cluster decides, which is Dynamic Resource
// Allocation if it has that, and then in the other way. The cluster keeps running.
func Run(ctx context.Context, options Options) error {
	d := &demo{report: newReport(options.Out)}
	end, err := d.start(ctx, options.Dir)
	if err != nil {
		return err
	}
	defer end()

	if err := d.install(ctx); err != nil {
		return err
	}
	if err := d.useDevices(ctx); err != nil {
		return err
	}
	if !d.external() { // elsewhere, the version may be too old, and the nodes belong to others
		if err := d.useOtherForm(ctx); err != nil {
			return err
		}
	}
	d.hints()
	return nil
}

func (d *demo) useDevices(ctx context.Context) error {
	if err := d.shareEcho(ctx); err != nil {
		return err
	}
	return d.hotPlug(ctx)
}

// useOtherForm uses devices in the other way, and compares both. At the end Pods get devices as the
// cluster has decided. Those that run keep theirs.
func (d *demo) useOtherForm(ctx context.Context) error {
	decided := d.form
	d.form = decided.other()
	d.title("The same with " + d.form.name())

	if err := d.removeConfigurations(ctx); err != nil {
		return err
	}
	if err := d.labelNodes(ctx, "="+d.form.resources); err != nil {
		return err
	}
	d.done("all nodes have the label %s=%s", akriv0.ResourcesLabel, d.form.resources)

	if err := d.useDevices(ctx); err != nil {
		return err
	}
	d.compare(decided, d.form)
	return d.labelNodes(ctx, "-")
}

// labelNodes sets or removes the label that states how Pods on a node get devices.
func (d *demo) labelNodes(ctx context.Context, change string) error {
	_, err := d.mesh.Kubectl(ctx, "", "label", "nodes", "--all", "--overwrite", akriv0.ResourcesLabel+change)
	return err
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
	d.title("Step 5 of 5: install Akri with helm and use devices")
	if !d.external() { // elsewhere, the helm of another user can work on the release
		if err := d.mesh.Recover(ctx); err != nil {
			return err
		}
		if err := d.labelNodes(ctx, "-"); err != nil { // of a demo that was killed
			return err
		}
	}
	if err := d.removeConfigurations(ctx); err != nil {
		return err
	}

	err := d.while("helm is installing Akri and waiting for the workloads", func() error {
		return d.mesh.Install(ctx)
	})
	if err != nil {
		return err
	}
	d.done("all services are ready")
	return d.awaitDecision(ctx)
}

// awaitDecision waits until the cluster has decided how Pods get devices. The first node stands for
// all.
func (d *demo) awaitDecision(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()

	const decision = "the decision how Pods get devices"
	var record map[string]string
	err := d.while("waiting for "+decision, func() error {
		return mesh.Await(ctx, decision, func(ctx context.Context) error {
			configMap, err := d.mesh.Kubernetes.CoreV1().ConfigMaps(mesh.Namespace).Get(ctx, akriv0.ResourcesConfigMap, metav1.GetOptions{})
			if err != nil {
				return fmt.Errorf("get the decision: %w", err)
			}
			if record = configMap.Data; record[akriv0.ResourcesKey] == "" {
				return errors.New("nothing is recorded")
			}
			return nil
		})
	})
	if err != nil {
		return err
	}

	nodes, err := d.mesh.Kubernetes.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	d.form = &form{resources: akriv0.ResourcesOf(&nodes.Items[0], record[akriv0.ResourcesKey])}
	d.done("the cluster has decided that Pods get devices with %s: %s", d.form.name(), record[akriv0.ResourcesMessageKey])
	return nil
}

// removeConfigurations removes those of the demo. An installation with Instances keeps how Pods get
// devices.
func (d *demo) removeConfigurations(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for _, name := range []string{"debug-echo", "udev-zram", "udev-null"} {
		err := d.mesh.Configurations.In(namespace).Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("remove Configuration: %w", err)
		}
		err = mesh.Await(ctx, "removal of the Instances and brokers", func(ctx context.Context) error {
			err := none(d.mesh.InstancesOf(ctx, namespace, name))
			if err != nil && !apierrors.IsNotFound(err) { // as before the first installation
				return err
			}
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

// compare prints the times of forms.
func (d *demo) compare(forms ...*form) {
	d.title("Brokers are ready after")
	for _, form := range forms {
		fmt.Fprintf(d.out, "  %-28s shared devices %5.1f s   plugged-in device %5.1f s\n", form.name(), form.shared.Seconds(), form.plugged.Seconds())
	}
}

func (d *demo) hints() {
	fmt.Fprintf(d.out, `
The cluster keeps running. Try:

  export KUBECONFIG=%s
  export PATH=%s:$PATH
  kubectl get akric,akrii,pods,services
  kubectl describe akric debug-echo
  kubectl get configmap akri-resources --namespace %s -o yaml   # how Pods get devices, and why
  kubectl get resourceslices,deviceclasses,resourceclaims
`, d.mesh.Cluster.Kubeconfig(), d.mesh.Bin(), mesh.Namespace)
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
