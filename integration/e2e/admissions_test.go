package e2e_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// admissions notes when the pods of one workload were admitted and when they ended, and which the kubelet refused.
type admissions struct {
	mu       sync.Mutex
	admitted map[string]time.Time
	ended    map[string]time.Time
	refused  map[string]string
}

// follow watches the pods with the label app=<app> until the test ends.
func follow(t *testing.T, app string) *admissions {
	t.Helper()
	pods, err := akri.Kubernetes.CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	require.NoError(t, err)
	a := &admissions{admitted: map[string]time.Time{}, ended: map[string]time.Time{}, refused: map[string]string{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range pods.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				a.note(pod, event.Type == watch.Deleted)
			}
		}
	}()
	t.Cleanup(func() { pods.Stop(); <-done })
	return a
}

// note looks at one state of a pod. A pod has ended when its phase says so: its devices can be allocated again from then on,
// and its object goes later.
func (a *admissions) note(pod *corev1.Pod, gone bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	over := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
	if a.admitted[pod.Name].IsZero() && pod.Status.StartTime != nil {
		a.admitted[pod.Name] = time.Now()
	}
	if a.ended[pod.Name].IsZero() && (gone || over) {
		a.ended[pod.Name] = time.Now()
	}
	if over && pod.DeletionTimestamp == nil && pod.Status.Reason != "" {
		a.refused[pod.Name] = fmt.Sprintf("%s on %s: %s: %s", pod.Name, pod.Spec.NodeName, pod.Status.Reason, pod.Status.Message)
	}
}

// between is how long after the one pod ended the other was admitted.
func (a *admissions) between(t *testing.T, former, next string) (took time.Duration) {
	t.Helper()
	await(t, "word of "+former+" and "+next, func(context.Context) error {
		a.mu.Lock()
		defer a.mu.Unlock()
		ended, admitted := a.ended[former], a.admitted[next]
		if ended.IsZero() || admitted.IsZero() {
			return fmt.Errorf("ended %s, admitted %s", ended, admitted)
		}
		took = admitted.Sub(ended)
		return nil
	})
	return took
}

// storm is how many pods were refused, and within what time.
func (a *admissions) storm() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var first, last time.Time
	for name := range a.refused {
		if at := a.ended[name]; first.IsZero() || at.Before(first) {
			first = at
		}
		if at := a.ended[name]; at.After(last) {
			last = at
		}
	}
	return fmt.Sprintf("%d within %s", len(a.refused), last.Sub(first).Round(time.Millisecond))
}

func (a *admissions) refusals() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return values(a.refused)
}

// runningPods are those of the workload that run and are not being deleted.
func runningPods(ctx context.Context, app string) ([]corev1.Pod, error) {
	list, err := akri.Kubernetes.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, err
	}
	var running []corev1.Pod
	for _, pod := range list.Items {
		if pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
			running = append(running, pod)
		}
	}
	return running, nil
}

// awaitRunning waits until exactly so many pods of the workload run.
func awaitRunning(t *testing.T, app string, count int) []corev1.Pod {
	t.Helper()
	var running []corev1.Pod
	await(t, fmt.Sprintf("%d running pods of %s", count, app), func(ctx context.Context) (err error) {
		if running, err = runningPods(ctx, app); err == nil && len(running) != count {
			err = fmt.Errorf("%d run", len(running))
		}
		return err
	})
	return running
}

// deployment asks for one device of the resource in each of its pods.
func deployment(name, resource string, replicas int) string {
	return fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: default}
spec:
  replicas: %[3]d
  strategy: {type: Recreate}
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: main
        image: ghcr.io/akri-mesh/sample-broker:dev
        imagePullPolicy: IfNotPresent
        resources: {limits: {"akri.sh/%[2]s": "1"}}
`, name, resource, replicas)
}

// awaitShown waits until the nodes together show so much of the resource to the scheduler.
func awaitShown(t *testing.T, resource string, want int64) {
	t.Helper()
	await(t, fmt.Sprintf("the nodes to show %d akri.sh/%s", want, resource), func(ctx context.Context) error {
		shown := int64(0)
		for _, node := range akri.Cluster.Nodes() {
			one, err := akri.Allocatable(ctx, node.Name(), resource)
			if err != nil {
				return err
			}
			shown += one
		}
		if shown != want {
			return fmt.Errorf("they show %d", shown)
		}
		return nil
	})
}
