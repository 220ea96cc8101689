package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/integration/cluster"
	"akri.sh/integration/devices"
	"akri.sh/integration/mesh"
)

const (
	waitingName = "bench-waiting"
	// waitingConfiguration has the name of that with brokers, hence the same Instances.
	waitingConfiguration = `
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: bench, namespace: default}
spec:
  discoveryHandler:
    name: udev
    discoveryDetails: |
      udevRules:
      - SUBSYSTEM=="block", KERNEL=="zram[1-9]*"
`
	waitingResource = "akri.sh/bench"

	// schedulerBackoff is longer than kube-scheduler's podInitialBackoffSeconds, in which it does
	// not try a Pod again, and its double after a second attempt. Pods of users have waited longer.
	schedulerBackoff = 3 * time.Second
)

// waits are how long Pods waited that ran, and the number of those that a kubelet refused instead.
type waits struct {
	took    []time.Duration
	refused int
}

func (w waits) share() string { return fmt.Sprintf("%d of %d", w.refused, w.refused+len(w.took)) }

// waiting creates a Pod when the device of the previous one has no Instances any more, plugs the
// device in again while the Pod waits, and so on. A Pod that is refused is replaced, as a
// Deployment does it.
func (b *bench) waiting(ctx context.Context, rounds int) (result waits, err error) {
	b.progress("plugging in a device %d times for which a Pod waits", rounds)
	err = b.plugRounds(ctx, waitingConfiguration, rounds+1, func(ctx context.Context, uevents *devices.UeventSocket, round int) error {
		took, refused, err := b.waitOnce(ctx, uevents, corev1.EnvVar{Name: startVariable, Value: fmt.Sprint(waitingName, round)})
		if round > 0 {
			result.refused += refused
			result.took = append(result.took, took...)
		}
		return err
	})
	return result, err
}

// waitOnce returns no time if the Pod that waited was refused. The variable distinguishes the
// container of the Pod from that of the previous one, which may still end.
func (b *bench) waitOnce(
	ctx context.Context, uevents *devices.UeventSocket, variable corev1.EnvVar,
) (took []time.Duration, refused int, err error) {
	if refused, err = b.createWaiting(ctx, variable); err != nil {
		return nil, refused, err
	}
	defer func() { err = errors.Join(err, b.deletePod(context.WithoutCancel(ctx), waitingName)) }()
	if err := cluster.Pause(ctx, schedulerBackoff); err != nil {
		return nil, refused, err
	}

	zram, err := devices.PlugZram(ctx, "bench")
	if err != nil {
		return nil, refused, err
	}
	defer func() { err = errors.Join(err, zram.Unplug(context.WithoutCancel(ctx)), b.awaitNoInstances(ctx)) }()
	plugged, err := uevents.Await(ctx, "add", zram.DevPath())
	if err != nil {
		return nil, refused, err
	}

	ran, err := b.awaitContainer(ctx, waitingName, variable.Name+"="+variable.Value)
	if ran {
		took = []time.Duration{time.Since(plugged)}
	} else {
		refused++
	}
	return took, refused, err
}

func (b *bench) awaitNoInstances(ctx context.Context) error {
	return mesh.Await(ctx, "removal of Instances", func(ctx context.Context) error {
		instances, err := b.mesh.InstancesOf(ctx, namespace, "bench")
		if err == nil && len(instances) > 0 {
			err = fmt.Errorf("%d Instances are left", len(instances))
		}
		return err
	})
}

// awaitContainer waits until a container with the variable runs. It returns false if a kubelet
// refuses the Pod.
func (b *bench) awaitContainer(ctx context.Context, pod, variable string) (ran bool, err error) {
	pods := b.mesh.Kubernetes.CoreV1().Pods(namespace)
	err = cluster.Wait(ctx, containersInterval, func() error {
		if ran = b.runsWith(variable); ran {
			return nil
		}
		found, err := pods.Get(ctx, pod, metav1.GetOptions{})
		if err == nil && found.Status.Phase == corev1.PodFailed {
			return nil
		}
		return errors.Join(err, errors.New("the container does not run"))
	})
	return ran, err
}

// runsWith reports whether a container with the variable runs on a node.
func (b *bench) runsWith(variable string) bool {
	return slices.ContainsFunc(b.mesh.Cluster.Nodes(), func(node cluster.Node) bool {
		return len(containersWith(node, variable)) > 0
	})
}

// createWaiting creates a Pod that waits for the device, and returns how many Pods a kubelet
// refused before one waited. The cache of the scheduler may still have the device, so that it
// places the Pod: with a ResourceClaim it waits on its node, otherwise it is refused.
func (b *bench) createWaiting(ctx context.Context, variable corev1.EnvVar) (refused int, err error) {
	pods := b.mesh.Kubernetes.CoreV1().Pods(namespace)
	for {
		if err := b.createPod(ctx, waitingName, waitingResource, variable); err != nil {
			return refused, err
		}

		failed := false
		err := mesh.AwaitObject(ctx, "a Pod that waits", pods, waitingName, func(pod *corev1.Pod) error {
			failed = pod.Status.Phase == corev1.PodFailed
			waits := pod.Status.ExtendedResourceClaimStatus != nil || pod.Spec.NodeName == "" && len(pod.Status.Conditions) > 0
			if !failed && !waits {
				return fmt.Errorf("it is %s on node %q", pod.Status.Phase, pod.Spec.NodeName)
			}
			return nil
		})
		if err != nil || !failed {
			return refused, err
		}

		refused++
		if err := b.deletePod(ctx, waitingName); err != nil {
			return refused, err
		}
	}
}
