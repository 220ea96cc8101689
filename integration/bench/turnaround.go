package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/mesh"
)

const (
	turnarounds = 30

	turnaroundRow = "pod ended → its slot is free for all nodes"

	turnConfiguration = `
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: bench-turn, namespace: default}
spec:
  discoveryHandler: {name: debugEcho, discoveryDetails: 'descriptions: ["foo0"]'}
`
	turnInstance = "bench-turn-8120fe"
	turnPod      = `
apiVersion: v1
kind: Pod
metadata: {name: bench-turn, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ghcr.io/akri-mesh/sample-broker:dev
    imagePullPolicy: IfNotPresent
    resources: {limits: {"akri.sh/bench-turn-8120fe": "1"}}
`
)

// turnaround measures the time from the end of a pod until its slot is free for all nodes.
func (b *bench) turnaround(ctx context.Context) ([]time.Duration, error) {
	b.progress("measuring when the slots of %d deleted pods are free", turnarounds)
	return b.repeatWith(ctx, turnConfiguration, turnarounds, b.turn)
}

func (b *bench) turn(ctx context.Context) (took time.Duration, err error) {
	if err := b.mesh.ApplyText(ctx, turnPod); err != nil {
		return 0, err
	}
	pods := b.mesh.Kubernetes.CoreV1().Pods("default")
	err = mesh.AwaitObject(ctx, "running pod", pods, "bench-turn", func(pod *corev1.Pod) error {
		if pod.Status.Phase != corev1.PodRunning {
			return errors.New(string(pod.Status.Phase))
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	ended, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=bench-turn"})
	if err != nil {
		return 0, fmt.Errorf("watch pod: %w", err)
	}
	defer ended.Stop()
	if err := pods.Delete(ctx, "bench-turn", metav1.DeleteOptions{}); err != nil {
		return 0, fmt.Errorf("delete pod: %w", err)
	}
	for event := range ended.ResultChan() {
		if pod, ok := event.Object.(*corev1.Pod); ok && (pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed) {
			break
		}
	}
	start := time.Now()
	err = mesh.Await(ctx, "free slot", func(ctx context.Context) error {
		instance, err := b.mesh.Instances.In("default").Get(ctx, turnInstance, metav1.GetOptions{})
		if err == nil && instance.Spec.DeviceUsage[akriv0.SlotName(turnInstance, 0)] != "" {
			err = errors.New("the slot is held")
		}
		return err
	})
	took = time.Since(start)
	return took, errors.Join(err, b.mesh.DeleteText(ctx, turnPod))
}
