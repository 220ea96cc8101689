package e2e_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// admissions records when the pods of one workload ended, and which pods the kubelet rejected.
type admissions struct {
	mu       sync.Mutex
	ended    map[string]time.Time
	rejected map[string]string
}

// follow watches the pods with the label app=<app> until the test ends.
func follow(t *testing.T, app string) *admissions {
	t.Helper()
	pods, err := akri.Kubernetes.CoreV1().Pods("default").Watch(t.Context(), ofApp(app))
	require.NoError(t, err)
	a := &admissions{ended: map[string]time.Time{}, rejected: map[string]string{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for event := range pods.ResultChan() {
			if pod, ok := event.Object.(*corev1.Pod); ok {
				a.record(pod, event.Type == watch.Deleted)
			}
		}
	}()
	t.Cleanup(func() { pods.Stop(); <-done })
	return a
}

// record handles one event of a pod. A pod has ended when its phase is Failed or Succeeded: its
// devices can be allocated again, and its object is deleted later.
func (a *admissions) record(pod *corev1.Pod, deleted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ended := pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded
	if a.ended[pod.Name].IsZero() && (deleted || ended) {
		a.ended[pod.Name] = time.Now()
	}
	if ended && pod.DeletionTimestamp == nil && pod.Status.Reason != "" {
		a.rejected[pod.Name] = fmt.Sprintf("%s on %s: %s: %s", pod.Name, pod.Spec.NodeName, pod.Status.Reason, pod.Status.Message)
	}
}

// summary returns the number of rejected pods and the time from the first to the last rejection.
func (a *admissions) summary() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var first, last time.Time
	for name := range a.rejected {
		if at := a.ended[name]; first.IsZero() || at.Before(first) {
			first = at
		}
		if at := a.ended[name]; at.After(last) {
			last = at
		}
	}
	return fmt.Sprintf("%d within %s", len(a.rejected), last.Sub(first).Round(time.Millisecond))
}

// rejections returns the rejected pods with the reasons.
func (a *admissions) rejections() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return values(a.rejected)
}

// runningPods returns the pods of the workload that run and are not being deleted.
func runningPods(ctx context.Context, app string) ([]corev1.Pod, error) {
	list, err := akri.Kubernetes.CoreV1().Pods("default").List(ctx, ofApp(app))
	if err != nil {
		return nil, err
	}
	return running(list.Items), nil
}

func ofApp(name string) metav1.ListOptions { return metav1.ListOptions{LabelSelector: "app=" + name} }

func running(pods []corev1.Pod) []corev1.Pod {
	return slices.DeleteFunc(pods, func(pod corev1.Pod) bool {
		return pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodRunning
	})
}

// awaitRunning waits until exactly count pods of the workload run.
func awaitRunning(t *testing.T, app string, count int) []corev1.Pod {
	t.Helper()
	return awaitRunningWithout(t, app, count)
}

// awaitRunningWithout waits until exactly count pods of the workload run and none of them has one
// of the names.
func awaitRunningWithout(t *testing.T, app string, count int, names ...string) (found []corev1.Pod) {
	t.Helper()
	what := fmt.Sprintf("%d running pods of %s without %v", count, app, names)
	awaitObjects(t, what, akri.Kubernetes.CoreV1().Pods("default"), ofApp(app), func(pods []corev1.Pod) error {
		found = running(pods)
		if len(found) != count || slices.ContainsFunc(found, func(pod corev1.Pod) bool { return slices.Contains(names, pod.Name) }) {
			return fmt.Errorf("%d pods run: %v", len(found), podUIDs(found))
		}
		return nil
	})
	return found
}

// deployment returns a Deployment whose pods request one device of the resource each.
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
