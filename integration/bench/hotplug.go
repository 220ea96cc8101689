package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/devices"
	"akri.sh/integration/mesh"
)

const roundWithin = time.Minute

const configuration = `
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: bench, namespace: default}
spec:
  discoveryHandler:
    name: udev
    discoveryDetails: |
      udevRules:
      - SUBSYSTEM=="block", KERNEL=="zram[1-9]*"
  brokerSpec:
    brokerPodSpec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: broker
        image: ghcr.io/akri-mesh/sample-broker:dev
        imagePullPolicy: IfNotPresent
        resources: {limits: {"{{PLACEHOLDER}}": "1"}}
`

// hotPlug holds, for each round and node, how long each stage took.
type hotPlug struct {
	sent, instance, capacity, pod []time.Duration
}

// stamps are when something was first seen, by name.
type stamps map[string]time.Time

func (b *bench) hotPlug(ctx context.Context) (*hotPlug, error) {
	if err := b.mesh.ApplyText(ctx, configuration); err != nil {
		return nil, err
	}
	uevents, err := devices.Uevents()
	if err != nil {
		return nil, err
	}
	defer uevents.Close()
	result := &hotPlug{}
	for round := range b.Rounds {
		// The first round warms caches and connections.
		if err := b.round(ctx, uevents, result, round > 0); err != nil {
			return nil, fmt.Errorf("round %d: %w", round, err)
		}
		b.say("hot-plug round %d of %d", round+1, b.Rounds)
	}
	return result, b.mesh.DeleteText(ctx, configuration)
}

func (b *bench) round(ctx context.Context, uevents *devices.UeventSocket, result *hotPlug, count bool) (err error) {
	ctx, cancel := context.WithTimeout(ctx, roundWithin)
	defer cancel()
	instances, err := b.mesh.Instances.In("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watch Instances: %w", err)
	}
	defer instances.Stop()
	pods, err := b.mesh.Kubernetes.CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{LabelSelector: mesh.ConfigurationLabel + "=bench"})
	if err != nil {
		return fmt.Errorf("watch Pods: %w", err)
	}
	defer pods.Stop()
	offers := b.watchCheckpoints(ctx)

	zram, err := devices.PlugZram(ctx, "bench")
	if err != nil {
		return err
	}
	wanted := b.instancesOf(zram)
	defer func() {
		err = errors.Join(err, zram.Unplug(ctx), b.awaitGone(ctx, wanted))
	}()
	plugged, err := uevents.Await(ctx, "add", zram.DevPath())
	if err != nil {
		return err
	}
	made, created, err := collect(ctx, instances, pods, wanted)
	if err != nil {
		return err
	}
	for _, name := range wanted {
		offered, err := offers.await(ctx, akriv0.ResourceName(name))
		if err != nil {
			return err
		}
		if count {
			result.instance = append(result.instance, made[name].Sub(plugged))
			result.capacity = append(result.capacity, offered.Sub(made[name]))
			result.pod = append(result.pod, created[name].Sub(made[name]))
		}
	}
	return nil
}

// instancesOf names the Instances of a local device, one for each node.
func (b *bench) instancesOf(zram *devices.Zram) []string {
	var names []string
	for _, node := range b.mesh.Cluster.Nodes() {
		names = append(names, akriv0.InstanceName("bench", akriv0.Digest(zram.DevPath(), node.Name(), false)))
	}
	return names
}

// collect waits until each Instance and its broker Pod have been seen, and returns when.
func collect(ctx context.Context, instances, pods watch.Interface, wanted []string) (made, created stamps, err error) {
	made, created = stamps{}, stamps{}
	for len(made) < len(wanted) || len(created) < len(wanted) {
		select {
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("saw Instances %v and Pods %v of %v: %w", made, created, wanted, ctx.Err())
		case event := <-instances.ResultChan():
			if instance, ok := event.Object.(*akriv0.Instance); ok && event.Type == watch.Added && slices.Contains(wanted, instance.Name) {
				made[instance.Name] = time.Now()
			}
		case event := <-pods.ResultChan():
			if pod, ok := event.Object.(*corev1.Pod); ok && event.Type == watch.Added {
				created[pod.Labels[mesh.InstanceLabel]] = time.Now()
			}
		}
	}
	return made, created, nil
}

// awaitGone waits until nobody knows the device: it comes back under the same name.
func (b *bench) awaitGone(ctx context.Context, wanted []string) error {
	var resources []string
	for _, name := range wanted {
		resources = append(resources, akriv0.ResourceName(name))
	}
	return mesh.Await(ctx, "Instances, brokers and resources to leave", func(ctx context.Context) error {
		instances, err := b.mesh.InstancesOf(ctx, "default", "bench")
		if err != nil {
			return err
		}
		pods, err := b.mesh.BrokersOf(ctx, "default", "bench")
		if err == nil && len(instances)+len(pods) > 0 {
			err = fmt.Errorf("%d Instances and %d brokers are left", len(instances), len(pods))
		}
		if err == nil && b.offered(resources) {
			err = errors.New("a kubelet still offers the resource")
		}
		if left := b.plugins(); err == nil && left > 0 {
			err = fmt.Errorf("%d plugins have not left yet: the device would come back to them, which is quicker than anew", left)
		}
		return err
	})
}

// plugins counts the sockets of device-plugin-host that the kubelets have.
func (b *bench) plugins() (count int) {
	for _, node := range b.mesh.Cluster.Nodes() {
		sockets, _ := filepath.Glob(filepath.Join(filepath.Dir(checkpoint(node)), "akri-*.sock")) // the one error is a bad pattern
		count += len(sockets)
	}
	return count
}
