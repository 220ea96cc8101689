package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/integration/mesh"
)

const serviceRestarts = 5

// restart kills the Pod of the form's service on each node and creates a Pod with a device. It
// returns how long those that no kubelet refuses take after the services are ready again until
// their containers run: 0 if a container runs before that.
func (b *bench) restart(ctx context.Context, form form) (result waits, err error) {
	b.progress("restarting %s %d times while a Pod waits", form.service, serviceRestarts)
	round := 0
	_, err = b.repeatWith(ctx, startDevice, serviceRestarts, func(ctx context.Context) (time.Duration, error) {
		round++
		took, ran, err := b.restartOnce(ctx, form, fmt.Sprint(form.value, round))
		if ran {
			result.took = append(result.took, took)
		} else {
			result.refused++
		}
		return took, err
	})
	return result, err
}

func (b *bench) restartOnce(ctx context.Context, form form, round string) (took time.Duration, ran bool, err error) {
	// The device is offered if a Pod gets it.
	if _, err := b.startOnce(ctx, round+"-first", startResource); err != nil {
		return 0, false, err
	}

	services := b.mesh.Kubernetes.CoreV1().Pods(mesh.Namespace)
	options := metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=" + form.service}
	killed, err := services.List(ctx, options)
	if err != nil {
		return 0, false, fmt.Errorf("list Pods: %w", err)
	}
	old := map[string]bool{}
	for _, pod := range killed.Items {
		old[pod.Name] = true
		if err := services.Delete(ctx, pod.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			return 0, false, fmt.Errorf("delete Pod: %w", err)
		}
	}
	if err := b.createPod(ctx, startName, startResource, corev1.EnvVar{Name: startVariable, Value: round}); err != nil {
		return 0, false, err
	}
	defer func() { err = errors.Join(err, b.deletePod(context.WithoutCancel(ctx), startName)) }()

	err = mesh.AwaitObjects(ctx, "the next Pods of the service", services, options, func(found []corev1.Pod) error {
		ready := 0
		for _, pod := range found {
			if !old[pod.Name] && mesh.Ready(&pod) {
				ready++
			}
		}
		if ready < len(old) {
			return fmt.Errorf("%d of %d are ready", ready, len(old))
		}
		return nil
	})
	if err != nil {
		return 0, false, err
	}
	ready, variable := time.Now(), startVariable+"="+round
	if b.runsWith(variable) {
		return 0, true, nil
	}
	ran, err = b.awaitContainer(ctx, startName, variable)
	return time.Since(ready), ran, err
}
