package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/integration/mesh"
)

const (
	startName = "bench-start"
	// startVariable is in the environment of the container of each of these Pods. Its value is that
	// of the round.
	startVariable = "BENCH_START"
	startResource = "akri.sh/bench-start"
	// startDevice has more slots than Pods run at the same time: no Pod waits for a slot.
	startDevice = `
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: bench-start, namespace: default}
spec:
  discoveryHandler: {name: debugEcho, discoveryDetails: 'descriptions: ["foo0"]'}
  capacity: 4
`
)

// plain returns how long Pods without a device take from their creation until their containers run,
// and from the deletion of a Pod until the container of the Pod that waits for its end runs. What
// Pods with a device need beyond that is due to the device.
func (b *bench) plain(ctx context.Context) (created, next []time.Duration, err error) {
	b.progress("creating a Pod without a device %d times", b.Rounds)
	if created, err = b.start(ctx, ""); err != nil {
		return nil, nil, err
	}
	b.progress("deleting %d Pods without a device for whose end others wait", deletions)
	// One of these Pods runs at a time: they need the same port of the same node.
	manifest := deployment("bench-next", 2, "kubernetes.io/hostname: "+b.mesh.Cluster.Nodes()[0].Name(),
		"ports: [{containerPort: 9, hostPort: 9}]", "env: [{name: BENCH_NEXT, value: held}]")
	next, err = b.repeatWith(ctx, manifest, min(b.Rounds, deletions), b.deleteHolder)
	return created, next, err
}

// onEachNode returns how long Pods without a device take, one on each node, which are created at
// the same time, as the brokers of a device are.
func (b *bench) onEachNode(ctx context.Context) (took []time.Duration, err error) {
	b.progress("creating a Pod without a device on each node %d times", b.Rounds)
	for round := range b.Rounds {
		durations, err := b.startOnEachNode(ctx, corev1.EnvVar{Name: startVariable, Value: fmt.Sprint("each", round)})
		if err != nil {
			return nil, err
		}
		took = append(took, durations...)
	}
	return took, nil
}

func (b *bench) startOnEachNode(ctx context.Context, variable corev1.EnvVar) (took []time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	created := time.Now()
	for _, node := range b.mesh.Cluster.Nodes() {
		pod := podWith(startName+"-"+node.Name(), "", variable)
		pod.Spec.NodeSelector = map[string]string{corev1.LabelHostname: node.Name()}
		if err := b.create(ctx, pod); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, b.deletePod(context.WithoutCancel(ctx), pod.Name)) }()
	}
	return b.awaitOnEachNode(ctx, variable.Name+"="+variable.Value, created)
}

// present returns how long Pods with a device that exists already take from their creation until
// their containers run.
func (b *bench) present(ctx context.Context) ([]time.Duration, error) {
	b.progress("creating a Pod with a device %d times", b.Rounds)
	if err := b.mesh.ApplyText(ctx, startDevice); err != nil {
		return nil, err
	}
	took, err := b.start(ctx, startResource)
	if err != nil {
		return nil, err
	}
	return took, b.mesh.DeleteText(ctx, startDevice)
}

// start creates Pods one after the other. The first one does not count: it may wait until its
// device is offered.
func (b *bench) start(ctx context.Context, resource string) ([]time.Duration, error) {
	round := 0
	took, err := repeat(ctx, b.Rounds+1, roundTimeout, func(ctx context.Context) (time.Duration, error) {
		round++
		return b.startOnce(ctx, fmt.Sprint(resource, round), resource)
	})
	if err != nil {
		return nil, err
	}
	return took[1:], nil
}

func (b *bench) startOnce(ctx context.Context, round, resource string) (took time.Duration, err error) {
	created := time.Now()
	if err := b.createPod(ctx, startName, resource, corev1.EnvVar{Name: startVariable, Value: round}); err != nil {
		return 0, err
	}
	ran, err := b.awaitContainer(ctx, startName, startVariable+"="+round)
	if err == nil && !ran {
		err = errors.New("a kubelet refused the Pod")
	}
	took = time.Since(created)
	return took, errors.Join(err, b.deletePod(context.WithoutCancel(ctx), startName))
}

// createPod creates the Pod of podWith.
func (b *bench) createPod(ctx context.Context, name, device string, environment ...corev1.EnvVar) error {
	return b.create(ctx, podWith(name, device, environment...))
}

// podWith returns a Pod with one device of the resource, or without a device if there is no
// resource.
func podWith(name, device string, environment ...corev1.EnvVar) *corev1.Pod {
	container := corev1.Container{
		Name: "main", Image: "ghcr.io/akri-mesh/sample-broker:dev", ImagePullPolicy: corev1.PullIfNotPresent, Env: environment,
	}
	if device != "" {
		container.Resources.Limits = corev1.ResourceList{corev1.ResourceName(device): resource.MustParse("1")}
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Containers: []corev1.Container{container}},
	}
}

func (b *bench) create(ctx context.Context, pod *corev1.Pod) error {
	if _, err := b.mesh.Kubernetes.CoreV1().Pods(namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create Pod: %w", err)
	}
	return nil
}

// deletePod deletes a Pod without a grace period and waits for its end.
func (b *bench) deletePod(ctx context.Context, name string) error {
	pods := b.mesh.Kubernetes.CoreV1().Pods(namespace)
	if err := pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		return fmt.Errorf("delete Pod: %w", err)
	}
	options := metav1.ListOptions{FieldSelector: "metadata.name=" + name}
	return mesh.AwaitObjects(ctx, "the end of the Pod", pods, options, func(found []corev1.Pod) error {
		if len(found) > 0 {
			return errors.New("the Pod exists")
		}
		return nil
	})
}
