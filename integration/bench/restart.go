package bench

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"akri.sh/integration/mesh"
)

// serviceRestarts are few: the kubelet delays each further restart of a container by twice the
// time.
const serviceRestarts = 2

// restart kills the container of the form's service on each node and creates a Pod with a device.
// It returns how long those that no kubelet refuses take after the services are ready again until
// their containers run: 0 if a container runs before that.
func (b *bench) restart(ctx context.Context, form form) (result waits, err error) {
	b.progress("restarting %s %d times while a Pod waits", form.service, serviceRestarts)
	round := 0
	_, err = b.repeatWith(ctx, startDevice, serviceRestarts, func(ctx context.Context) (time.Duration, error) {
		round++
		took, ran, err := b.restartOnce(ctx, form, fmt.Sprintf("%s-%t-%d", form.value, form.retries, round))
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
	list, err := services.List(ctx, options)
	if err != nil {
		return 0, false, fmt.Errorf("list Pods: %w", err)
	}
	killed := map[string]bool{}
	for _, pod := range list.Items {
		node, err := b.mesh.Cluster.Node(pod.Spec.NodeName)
		if err != nil {
			return 0, false, err
		}
		if err := node.KillContainer(ctx, pod.Namespace, pod.Name, form.service, syscall.SIGKILL); err != nil {
			return 0, false, err
		}
		killed[containerOf(&pod, form.service)] = true
	}
	if err := b.createPod(ctx, startName, startResource, corev1.EnvVar{Name: startVariable, Value: round}); err != nil {
		return 0, false, err
	}
	defer func() { err = errors.Join(err, b.deletePod(context.WithoutCancel(ctx), startName)) }()

	err = mesh.AwaitObjects(ctx, "the restarts of the service", services, options, func(found []corev1.Pod) error {
		for _, pod := range found {
			if !mesh.Ready(&pod) || killed[containerOf(&pod, form.service)] {
				return fmt.Errorf("pod %s is not ready again", pod.Name)
			}
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

// containerOf returns the id of a container of a Pod.
func containerOf(pod *corev1.Pod, name string) string {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == name {
			return status.ContainerID
		}
	}
	return ""
}
