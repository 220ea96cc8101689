package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/integration/cluster"
	"akri.sh/integration/mesh"
)

const plainName = "bench-plain"

// plain returns how long Pods without a device take from their creation until their containers run.
// What Pods with a device need beyond that is due to the device.
func (b *bench) plain(ctx context.Context, rounds int) ([]time.Duration, error) {
	b.progress("creating a Pod without a device %d times", rounds)
	round := 0
	return repeat(ctx, rounds, roundTimeout, func(ctx context.Context) (time.Duration, error) {
		round++
		return b.plainOnce(ctx, fmt.Sprint(round))
	})
}

func (b *bench) plainOnce(ctx context.Context, round string) (took time.Duration, err error) {
	pods := b.mesh.Kubernetes.CoreV1().Pods(namespace)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: plainName},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "main", Image: "ghcr.io/akri-mesh/sample-broker:dev", ImagePullPolicy: corev1.PullIfNotPresent,
			Env: []corev1.EnvVar{{Name: "BENCH_PLAIN", Value: round}},
		}}},
	}
	created := time.Now()
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return 0, fmt.Errorf("create Pod: %w", err)
	}
	err = cluster.Wait(ctx, containersInterval, func() error {
		for _, node := range b.mesh.Cluster.Nodes() {
			if len(containersWith(node, "BENCH_PLAIN="+round)) > 0 {
				return nil
			}
		}
		return errors.New("the container does not run")
	})
	took = time.Since(created)

	options := metav1.ListOptions{FieldSelector: "metadata.name=" + plainName}
	return took, errors.Join(err,
		pods.Delete(context.WithoutCancel(ctx), plainName, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}),
		mesh.AwaitObjects(ctx, "the end of the Pod", pods, options, func(found []corev1.Pod) error {
			if len(found) > 0 {
				return errors.New("the Pod exists")
			}
			return nil
		}))
}
