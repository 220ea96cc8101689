package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/integration/cluster"
	"akri.sh/integration/devices"
	"akri.sh/integration/mesh"
)

const (
	// containersInterval is the resolution of the times at which containers run.
	containersInterval = 20 * time.Millisecond
	// pluginRounds are fewer than with DRA, because each takes about ten seconds.
	pluginRounds = 5
	deletions    = 20
	idleDevices  = 100

	nextConfiguration = `
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: bench-next, namespace: default}
spec:
  discoveryHandler: {name: debugEcho, discoveryDetails: 'descriptions: ["foo0"]'}
  brokerProperties: {BENCH_NEXT: held}
`
)

// reactions are how long Pods wait for devices with a form.
type reactions struct {
	present, used, next []time.Duration
	waits, restarts     waits
}

// dra measures device plugins and Dynamic Resource Allocation, one after the other on the same
// cluster, and prints the results.
func (b *bench) dra(ctx context.Context) error {
	created, next, err := b.plain(ctx)
	if err != nil {
		return fmt.Errorf("measure Pods without a device: %w", err)
	}
	each, err := b.onEachNode(ctx)
	if err != nil {
		return fmt.Errorf("measure Pods on each node: %w", err)
	}
	rows := []latency{
		{"without a device: Pod created → its container runs", created},
		{"without a device: a Pod created on each node → its container runs", each},
		{"without a device: Pod deleted → the next Pod's container runs", next},
	}
	var refused strings.Builder
	fmt.Fprintf(&refused, "\n| Pods refused, of those that ran and those refused | device unplugged and plugged in | service restarted |\n|---|---|---|\n")

	for _, form := range forms {
		b.progress("installing Akri with %s", form.name)
		if err := b.mesh.Install(ctx, form.values()...); err != nil {
			return err
		}
		found, err := b.reactions(ctx, form)
		if err != nil {
			return fmt.Errorf("measure %s: %w", form.name, err)
		}
		rows = append(rows,
			latency{form.name + ": Pod created → its container runs", found.present},
			latency{form.name + ": plugged in → the container of a Pod that waits runs", found.waits.took},
			latency{form.name + ": plugged in → the broker's container runs", found.used},
			latency{form.name + ": Pod deleted → the next Pod's container runs", found.next},
			latency{form.name + ": " + form.service + " is ready again → the container of a Pod that waits runs", found.restarts.took},
		)
		fmt.Fprintf(&refused, "| %s | %s | %s |\n", form.name, found.waits.share(), found.restarts.share())
	}

	b.progress("installing Akri with %s", retrying.name)
	if err := b.mesh.Install(ctx, retrying.values()...); err != nil {
		return err
	}
	retried, err := b.restart(ctx, retrying)
	if err != nil {
		return fmt.Errorf("measure %s: %w", retrying.name, err)
	}

	without, with, err := b.preparations(ctx)
	if err != nil {
		return fmt.Errorf("measure preparations: %w", err)
	}
	b.printLatencies(append(rows,
		latency{retrying.name + ": " + retrying.service + " is ready again → the container of a Pod that waits runs", retried.took},
		latency{"DRA: NodePrepareResources without a reservation", without},
		latency{"DRA: NodePrepareResources with a reservation", with},
	)...)
	fmt.Fprint(b.Out, refused.String())
	return nil
}

// reactions measures the form that is installed.
func (b *bench) reactions(ctx context.Context, form form) (found reactions, err error) {
	if found.present, err = b.present(ctx); err != nil {
		return found, err
	}
	if found.waits, err = b.waiting(ctx, b.Rounds); err != nil {
		return found, err
	}

	rounds := b.Rounds
	if form == plugins {
		rounds = min(rounds, pluginRounds)
	}
	if found.used, err = b.used(ctx, rounds); err != nil {
		return found, err
	}

	b.progress("deleting %d Pods for whose device others wait", deletions)
	manifest := nextConfiguration + deployment("bench-next", 2, "", `resources: {limits: {"akri.sh/bench-next": "1"}}`)
	if found.next, err = b.repeatWith(ctx, manifest, min(b.Rounds, deletions), b.deleteHolder); err != nil {
		return found, err
	}

	found.restarts, err = b.restart(ctx, form)
	return found, err
}

// draIdle prints the memory of the services of Dynamic Resource Allocation with many devices.
func (b *bench) draIdle(ctx context.Context) error {
	if err := b.mesh.Install(ctx, dynamic.values()...); err != nil {
		return err
	}

	var descriptions bytes.Buffer
	for i := range idleDevices {
		fmt.Fprintf(&descriptions, " device%d,", i)
	}
	manifest := fmt.Sprintf(`
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: idle-many, namespace: default}
spec: {discoveryHandler: {name: debugEcho, discoveryDetails: 'descriptions: [%s]'}}
`, descriptions.String())
	if err := b.mesh.ApplyText(ctx, manifest); err != nil {
		return err
	}

	b.progress("measuring memory with %d devices", idleDevices)
	found, err := b.idleMinute(ctx)
	if err != nil {
		return err
	}

	services := slices.DeleteFunc(found.services, func(u usage) bool {
		return u.service != "dra-controller" && !strings.HasPrefix(u.service, "dra-kubelet-plugin")
	})
	b.printUsage(fmt.Sprintf("Service, idle, %d devices", idleDevices), services...)
	return b.mesh.DeleteText(ctx, manifest)
}

// used returns the times from a uevent to the containers of the brokers.
func (b *bench) used(ctx context.Context, rounds int) (took []time.Duration, err error) {
	b.progress("plugging in a device %d times until its brokers run", rounds)
	err = b.plugRounds(ctx, configuration, rounds+1, func(ctx context.Context, uevents *devices.UeventSocket, round int) error {
		durations, err := b.useOnce(ctx, uevents)
		if round > 0 {
			took = append(took, durations...)
		}
		return err
	})
	return took, err
}

func (b *bench) useOnce(ctx context.Context, uevents *devices.UeventSocket) (took []time.Duration, err error) {
	zram, err := devices.PlugZram(ctx, "bench")
	if err != nil {
		return nil, err
	}

	variable := "UDEV_DEVNODE=" + zram.Node()
	nodes := b.mesh.Cluster.Nodes()
	defer func() {
		err = errors.Join(err, zram.Unplug(context.WithoutCancel(ctx)), b.awaitRemoval(ctx, b.instancesOf(zram)),
			// The next round counts the containers of its own brokers only.
			cluster.Wait(ctx, containersInterval, func() error {
				for _, node := range nodes {
					if pids := containersWith(node, variable); len(pids) > 0 {
						return fmt.Errorf("containers of removed brokers run on node %s: %v", node.Name(), pids)
					}
				}
				return nil
			}))
	}()

	plugged, err := uevents.Await(ctx, "add", zram.DevPath())
	if err != nil {
		return nil, err
	}

	return b.awaitOnEachNode(ctx, variable, plugged)
}

// awaitOnEachNode waits until a container with the variable runs on each node, and returns how long
// each took.
func (b *bench) awaitOnEachNode(ctx context.Context, variable string, began time.Time) (took []time.Duration, err error) {
	running, nodes := map[string]bool{}, b.mesh.Cluster.Nodes()
	check := func() error {
		for _, node := range nodes {
			if !running[node.Name()] && len(containersWith(node, variable)) > 0 {
				running[node.Name()] = true
				took = append(took, time.Since(began))
			}
		}
		if len(running) < len(nodes) {
			return fmt.Errorf("containers run on %d of %d nodes", len(running), len(nodes))
		}
		return nil
	}
	err = b.writeStateIfLate(ctx, func() error { return cluster.Wait(ctx, containersInterval, check) })
	return took, err
}

// containersWith returns the processes of the node's containers whose environment has the variable.
func containersWith(node cluster.Node, variable string) (pids []int) {
	containers, _ := node.Containers() // those that are missing are found the next time
	for _, container := range containers {
		environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", container.PID))
		if err == nil && bytes.Contains(environment, []byte(variable+"\x00")) {
			pids = append(pids, container.PID)
		}
	}
	return pids
}

// deleteHolder deletes the Pod with the only slot of a device while another Pod waits for it.
func (b *bench) deleteHolder(ctx context.Context) (time.Duration, error) {
	pods := b.mesh.Kubernetes.CoreV1().Pods(namespace)
	var holder string
	options := metav1.ListOptions{LabelSelector: "app=bench-next"}
	err := mesh.AwaitObjects(ctx, "a running Pod and a waiting one", pods, options, func(found []corev1.Pod) error {
		holder = ""
		waiting := 0
		for _, pod := range found {
			switch {
			case mesh.Ready(&pod):
				holder = pod.Name
			case pod.DeletionTimestamp == nil && pod.Spec.NodeName == "" && len(pod.Status.Conditions) > 0:
				waiting++
			}
		}
		if holder == "" || waiting == 0 {
			return fmt.Errorf("%d Pods exist, %d wait for the scheduler", len(found), waiting)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}

	previous := b.holders()
	start := time.Now()
	if err := pods.Delete(ctx, holder, metav1.DeleteOptions{}); err != nil {
		return 0, fmt.Errorf("delete Pod: %w", err)
	}
	err = cluster.Wait(ctx, containersInterval, func() error {
		if !slices.ContainsFunc(b.holders(), func(pid int) bool { return !slices.Contains(previous, pid) }) {
			return errors.New("no other container has the device")
		}
		return nil
	})
	return time.Since(start), err
}

// holders returns the containers that have the device of the test.
func (b *bench) holders() (pids []int) {
	for _, node := range b.mesh.Cluster.Nodes() {
		pids = append(pids, containersWith(node, "BENCH_NEXT=held")...)
	}
	return pids
}
