package mesh_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"akri.sh/integration/mesh"
)

func pod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

// names returns a check of the names of the Pods.
func names(want ...string) func([]corev1.Pod) error {
	return func(pods []corev1.Pod) error {
		var found []string
		for _, pod := range pods {
			found = append(found, pod.Name)
		}
		if fmt.Sprint(found) != fmt.Sprint(want) {
			return fmt.Errorf("the Pods are %v", found)
		}
		return nil
	}
}

func TestAwaitObjectsChecksEachChange(t *testing.T) {
	client, events := fake.NewClientset(pod("b")), watch.NewFake()
	client.PrependWatchReactor("pods", clienttesting.DefaultWatchReactor(events, nil))
	go func() {
		events.Add(pod("c"))
		events.Add(pod("a"))
		events.Delete(pod("b"))
	}()
	want := []func([]corev1.Pod) error{names("b"), names("b", "c"), names("a", "b", "c"), names("a", "c")}
	pods := client.CoreV1().Pods("default")
	require.NoError(t, mesh.AwaitObjects(t.Context(), "Pods", pods, metav1.ListOptions{}, func(found []corev1.Pod) error {
		require.NoError(t, want[0](found))
		if want = want[1:]; len(want) > 0 {
			return fmt.Errorf("%d changes are left", len(want))
		}
		return nil
	}))
}

// An API server ends all watches when it stops.
func TestAwaitObjectsListsAgainAfterAWatch(t *testing.T) {
	client := fake.NewClientset()
	client.PrependWatchReactor("pods", func(clienttesting.Action) (bool, watch.Interface, error) {
		err := client.Tracker().Add(pod("a"))
		return true, watch.NewEmptyWatch(), err
	})
	require.NoError(t, mesh.AwaitObjects(t.Context(), "Pods", client.CoreV1().Pods("default"), metav1.ListOptions{}, names("a")))
}

func TestAwaitObjectsReportsTheLastState(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	pods := fake.NewClientset(pod("a")).CoreV1().Pods("default")
	err := mesh.AwaitObjects(ctx, "Pod b", pods, metav1.ListOptions{}, names("b"))
	require.EqualError(t, err, "wait for Pod b: context deadline exceeded: the Pods are [a]")
}
