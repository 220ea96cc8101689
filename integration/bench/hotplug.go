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

const roundTimeout = time.Minute

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

// hotPlug holds the duration of each stage for each round and node.
type hotPlug struct {
	sent, instance, capacity, pod []time.Duration
}

func (b *bench) hotPlug(ctx context.Context) (*hotPlug, error) {
	result := &hotPlug{}
	return result, b.plugRounds(ctx, configuration, b.Rounds, func(ctx context.Context, uevents *devices.UeventSocket, round int) error {
		return b.round(ctx, uevents, result, round > 0)
	})
}

// plugRounds calls measure for each round, with the Configuration of the devices. The first round
// fills caches and opens connections, so it should not count.
func (b *bench) plugRounds(
	ctx context.Context, configuration string, rounds int,
	measure func(ctx context.Context, uevents *devices.UeventSocket, round int) error,
) error {
	if err := b.mesh.ApplyText(ctx, configuration); err != nil {
		return err
	}
	uevents, err := devices.Uevents()
	if err != nil {
		return err
	}
	defer uevents.Close()
	for round := range rounds {
		limited, cancel := context.WithTimeout(ctx, roundTimeout)
		err := measure(limited, uevents, round)
		cancel()
		if err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		b.progress("plugged in: round %d of %d", round+1, rounds)
	}
	return b.mesh.DeleteText(ctx, configuration)
}

func (b *bench) round(ctx context.Context, uevents *devices.UeventSocket, result *hotPlug, count bool) (err error) {
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
	names := b.instancesOf(zram)
	defer func() {
		err = errors.Join(err, zram.Unplug(ctx), b.awaitRemoval(ctx, names))
	}()
	plugged, err := uevents.Await(ctx, "add", zram.DevPath())
	if err != nil {
		return err
	}
	instancesSeen, podsSeen, err := collect(ctx, instances, pods, names)
	if err != nil {
		return err
	}
	for _, name := range names {
		offered, err := offers.await(ctx, akriv0.ResourceName(name))
		if err != nil {
			return err
		}
		if count {
			result.instance = append(result.instance, instancesSeen[name].Sub(plugged))
			result.capacity = append(result.capacity, offered.Sub(instancesSeen[name]))
			result.pod = append(result.pod, podsSeen[name].Sub(instancesSeen[name]))
		}
	}
	return nil
}

// instancesOf returns the names of a local device's Instances, one for each node.
func (b *bench) instancesOf(zram *devices.Zram) []string {
	var names []string
	for _, node := range b.mesh.Cluster.Nodes() {
		names = append(names, akriv0.InstanceName("bench", akriv0.Digest(zram.DevPath(), node.Name(), false)))
	}
	return names
}

// collect waits for all Instances and their broker Pods and returns when each was seen, by
// Instance.
func collect(
	ctx context.Context, instances, pods watch.Interface, names []string,
) (instancesSeen, podsSeen map[string]time.Time, err error) {
	instancesSeen, podsSeen = map[string]time.Time{}, map[string]time.Time{}
	for len(instancesSeen) < len(names) || len(podsSeen) < len(names) {
		select {
		case <-ctx.Done():
			return nil, nil, fmt.Errorf("saw Instances %v and Pods %v of %v: %w", instancesSeen, podsSeen, names, ctx.Err())
		case event := <-instances.ResultChan():
			if instance, ok := event.Object.(*akriv0.Instance); ok && event.Type == watch.Added && slices.Contains(names, instance.Name) {
				instancesSeen[instance.Name] = time.Now()
			}
		case event := <-pods.ResultChan():
			if pod, ok := event.Object.(*corev1.Pod); ok && event.Type == watch.Added {
				podsSeen[pod.Labels[mesh.InstanceLabel]] = time.Now()
			}
		}
	}
	return instancesSeen, podsSeen, nil
}

// awaitRemoval waits until all traces of the device are removed, because the next one has the same
// name.
func (b *bench) awaitRemoval(ctx context.Context, names []string) error {
	var resources []string
	for _, name := range names {
		resources = append(resources, akriv0.ResourceName(name))
	}

	return mesh.Await(ctx, "removal of Instances, brokers and resources", func(ctx context.Context) error {
		instances, err := b.mesh.InstancesOf(ctx, "default", "bench")
		if err != nil {
			return err
		}
		pods, err := b.mesh.BrokersOf(ctx, "default", "bench")
		if err != nil {
			return err
		}

		switch left := b.plugins(); {
		case len(instances)+len(pods) > 0:
			return fmt.Errorf("%d Instances and %d brokers are left", len(instances), len(pods))
		case b.offered(resources):
			return errors.New("a kubelet still offers the resource")
		case left > 0:
			return fmt.Errorf("%d plugins are left; the next round would reuse them and be faster", left)
		}
		return nil
	})
}

// plugins returns the number of device-plugin-host's sockets in the kubelets' directories.
func (b *bench) plugins() (count int) {
	for _, node := range b.mesh.Cluster.Nodes() {
		sockets, _ := filepath.Glob(filepath.Join(filepath.Dir(checkpoint(node)), "akri-*.sock")) // the only error is an invalid pattern
		count += len(sockets)
	}
	return count
}
