package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	akriv0 "akri.sh/libs/apis/akri/v0"

	"akri.sh/integration/mesh"
)

const (
	brokerDeletions = 10
	kubeletRestarts = 3

	recoveryName          = "bench-recovery"
	recoveryInstance      = "bench-recovery-8120fe"
	recoveryConfiguration = `
apiVersion: akri.sh/v0
kind: Configuration
metadata: {name: bench-recovery, namespace: default}
spec:
  discoveryHandler: {name: debugEcho, discoveryDetails: 'descriptions: ["foo0"]'}
  capacity: 2
  brokerSpec:
    brokerPodSpec:
      containers:
      - name: broker
        image: ghcr.io/akri-mesh/sample-broker:dev
        imagePullPolicy: IfNotPresent
        resources: {limits: {"{{PLACEHOLDER}}": "1"}}
`
)

// recovery returns the times until deleted brokers are replaced and restarted kubelets offer a
// resource.
func (b *bench) recovery(ctx context.Context) (brokers, kubelets []time.Duration, err error) {
	b.progress("deleting a broker %d times and restarting a kubelet %d times", brokerDeletions, kubeletRestarts)
	if err := b.mesh.ApplyText(ctx, recoveryConfiguration); err != nil {
		return nil, nil, err
	}
	if brokers, err = repeat(ctx, brokerDeletions, roundTimeout, b.deleteBroker); err != nil {
		return nil, nil, err
	}
	kubelets, err = repeat(ctx, kubeletRestarts, 2*roundTimeout, func(ctx context.Context) (time.Duration, error) {
		return mesh.RestartKubelet(ctx, b.mesh.Cluster.Nodes()[0], akriv0.ResourceName(recoveryInstance))
	})
	if err != nil {
		return nil, nil, err
	}
	return brokers, kubelets, b.mesh.DeleteText(ctx, recoveryConfiguration)
}

// deleteBroker deletes one of the two brokers and returns the time until a watch shows the next
// one.
func (b *bench) deleteBroker(ctx context.Context) (time.Duration, error) {
	pods := b.mesh.Kubernetes.CoreV1().Pods(namespace)
	options := metav1.ListOptions{LabelSelector: mesh.ConfigurationLabel + "=" + recoveryName}
	var list *corev1.PodList
	err := mesh.Await(ctx, "ready brokers", func(ctx context.Context) (err error) {
		list, err = pods.List(ctx, options)
		if err != nil {
			return err
		}
		ready := slices.DeleteFunc(slices.Clone(list.Items), func(pod corev1.Pod) bool { return !mesh.Ready(&pod) })
		if len(ready) != len(b.mesh.Cluster.Nodes()) {
			return fmt.Errorf("%d of %d brokers are ready", len(ready), len(list.Items))
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	options.ResourceVersion = list.ResourceVersion
	events, err := pods.Watch(ctx, options)
	if err != nil {
		return 0, fmt.Errorf("watch brokers: %w", err)
	}
	defer events.Stop()
	start := time.Now()
	if err := pods.Delete(ctx, list.Items[0].Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
		return 0, fmt.Errorf("delete broker: %w", err)
	}
	for event := range events.ResultChan() {
		if event.Type == watch.Added {
			return time.Since(start), nil
		}
	}
	return 0, errors.New("the watch of brokers ended")
}
